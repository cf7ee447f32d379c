//! The words of the configuration file that stand for a choice.

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
        /// At the next key frame: the least delay, the longest wait for a picture.
        KeyFrame = "keyframe",
        /// At the newest key frame that is there: a picture at once, up to a group of pictures
        /// behind.
        LatestGop = "latest-gop",
        /// At whichever is nearer.
        LowDelay = "low-delay",
    }
}

words! {
    /// The form of HLS segments.
    Container {
        /// Fragmented MP4.
        Fmp4 = "fmp4",
        /// MPEG-2 transport stream.
        Ts = "ts",
    }
}

words! {
    /// What a second publisher of a stream means.
    TakeOver {
        /// It is refused.
        Refuse = "refuse",
        /// It takes the stream over if it has the first one's key, or `on_publish` lets it in.
        SameKey = "same-key",
    }
}

words! {
    /// What a hook that does not answer means.
    OnFailure {
        /// No.
        Refuse = "refuse",
        /// Yes.
        Allow = "allow",
    }
}

words! {
    /// The least important messages that are still logged.
    Level {
        /// What stops something from working.
        Error = "error",
        /// What works worse than asked.
        Warn = "warn",
        /// What an operator wants to see once.
        Info = "info",
        /// Decisions of the server.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}
