"""The sections of the page, in its order."""
from . import crash, growth, idle, latency, others, policy, sessions

SECTIONS = [latency, growth, idle, crash, sessions, policy, others.HOST, others.RELAY, others.Load()]
