//! Wire codecs (RFC 9000, sections 16 to 19).
