"""moto's server, with puts that are conditional made one at a time.

moto looks whether an object is there and then puts it, in threads: two writers at once can both be told that they
were first. S3 itself decides this once (its documentation: "conditional writes").
"""

from __future__ import annotations

import threading
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import main

_one = threading.Lock()
_answer = DomainDispatcherApplication.__call__


def _in_turn(self: DomainDispatcherApplication, environ: dict[str, Any], start_response: Any) -> Any:
    if "HTTP_IF_NONE_MATCH" in environ and environ["REQUEST_METHOD"] in ("PUT", "POST"):
        with _one:
            return _answer(self, environ, start_response)
    return _answer(self, environ, start_response)


if __name__ == "__main__":
    DomainDispatcherApplication.__call__ = _in_turn
    main()
