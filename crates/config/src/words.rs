//! Enumerated values of configuration keys.

use crate::words;

words! {
    /// When a client must prove its address by a Retry (RFC 9000, section 8.1.2).
    Retry {
        /// Never.
        Never = "never",
        /// While many handshakes are unfinished.
        Auto = "auto",
        /// Always, unless the client brings a valid token.
        Always = "always",
    }
}

words! {
    /// An AEAD that TLS 1.3 may choose (RFC 9001, section 5.3).
    Cipher {
        /// TLS_AES_128_GCM_SHA256.
        Aes128 = "aes128",
        /// TLS_AES_256_GCM_SHA384.
        Aes256 = "aes256",
        /// TLS_CHACHA20_POLY1305_SHA256.
        ChaCha20 = "chacha20",
    }
}

words! {
    /// Where a viewer starts in a live stream.
    Start {
        /// At the next key frame: least delay, longest wait for a picture.
        KeyFrame = "keyframe",
        /// At the newest cached key frame: earliest picture, up to a group of pictures behind.
        LatestGop = "latest-gop",
        /// At the nearer of the two.
        LowDelay = "low-delay",
    }
}

words! {
    /// Format of HLS segments.
    Container {
        /// Fragmented MP4.
        Fmp4 = "fmp4",
        /// MPEG-2 transport stream.
        Ts = "ts",
    }
}

words! {
    /// Treatment of a second publisher of a stream.
    TakeOver {
        /// Reject it.
        Refuse = "refuse",
        /// Let it take over if it has the first one's key or `on_publish` grants it.
        SameKey = "same-key",
    }
}

words! {
    /// Decision if a hook does not answer.
    OnFailure {
        /// Reject.
        Refuse = "refuse",
        /// Allow.
        Allow = "allow",
    }
}

words! {
    /// Proof of control over a name for an ACME CA.
    AcmeChallenge {
        /// A TLS handshake on port 443 (RFC 8737).
        TlsAlpn01 = "tls-alpn-01",
        /// A file over plain HTTP on port 80 (RFC 8555, section 8.3).
        Http01 = "http-01",
    }
}

words! {
    /// Format of log messages.
    LogFormat {
        /// Lines for people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

words! {
    /// Least severe level of messages to log.
    Level {
        /// Failures.
        Error = "error",
        /// Degraded operation.
        Warn = "warn",
        /// Events for operators.
        Info = "info",
        /// Decisions of the server.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

impl Level {
    /// All levels, the most severe first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
}
