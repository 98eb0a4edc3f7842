"""A generated social network with friendships and messages, as ReStream's evaluation describes it."""

from timelapse.synth.network import Network
from timelapse.synth.write import generate

__all__ = ["Network", "generate"]
