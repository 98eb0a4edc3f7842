"""A generated social network with friendships and messages, as ReStream's evaluation describes it.

`network.py` makes the network block by block: a block is a function of settings and number, so any worker
may make it.
"""

from timelapse.synth.network import Network
from timelapse.synth.write import generate

__all__ = ["Network", "generate"]
