"""The sections of the page, in its order."""
from . import crash, growth, idle, latency, others, sessions

SECTIONS = [latency, growth, idle, crash, sessions, others.Policy(), others.HOST, others.RELAY, others.Load()]
