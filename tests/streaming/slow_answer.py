"""Stands for the process that answers a question, and takes for ever: it writes its number to a file that SLOW_ANSWER names."""

import os
import time
from pathlib import Path

Path(os.environ["SLOW_ANSWER"]).write_text(str(os.getpid()))
time.sleep(600)
