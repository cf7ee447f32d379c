"""Tests unmodified third-party QUIC clients against the real server, case by case, with evidence from both ends."""
