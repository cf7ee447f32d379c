"""Drives unmodified third-party QUIC clients against the real server: which client can do which case, and what proves it."""
