//! Words of the testbed's keys.

config::words! {
    /// Data source at the server.
    Kind {
        /// Frames of equal size.
        Frames = "frames",
        /// Endless data.
        Unbounded = "unbounded",
        /// A file.
        Download = "download",
        /// A stream with key frames through the product's relay.
        Live = "live",
        /// A video with several bitrates.
        Dash = "dash",
    }
}

config::words! {
    /// Rules of loss detection.
    DetectionRules {
        /// The edge's: RFC 9002 with tail PINGs and a limited probe interval.
        Live = "live",
        /// RFC 9002.
        Rfc9002 = "rfc9002",
        /// LSQUIC, AutoRec's base.
        Lsquic = "lsquic",
    }
}

config::words! {
    /// Copies of lost data that count as in flight.
    Accounting {
        /// Every copy.
        Every = "every",
        /// The newest copy of each unit, AutoRec's base.
        Newest = "newest",
    }
}

config::words! {
    /// Copies of ART that leave although the congestion window is full.
    Excess {
        /// Up to 2 packets or a quarter of the window.
        Bounded = "bounded",
        /// All.
        Unbounded = "unbounded",
    }
}

config::words! {
    /// Place of losses on a link.
    Place {
        /// After the bottleneck queue.
        AfterQueue = "after-queue",
        /// Before the bottleneck queue.
        BeforeQueue = "before-queue",
    }
}

config::words! {
    /// Source of the loss correlation of "deadline".
    Correlation {
        /// Measurements, starting from the prior.
        Measured = "measured",
        /// The prior alone.
        Expected = "expected",
        /// Independent losses.
        Nothing = "nothing",
    }
}

config::words! {
    /// Meaning of R.
    Readings {
        /// As the scheme's name says.
        Own = "own",
        /// Copies including the retransmission.
        Copies = "copies",
    }
}

config::words! {
    /// Times of copies.
    Spreads {
        /// The scheme's own.
        Own = "own",
        /// At once.
        AtOnce = "at-once",
        /// At random within the escape space.
        EscapeSpace = "escape-space",
        /// At random within the smallest round-trip time.
        RoundTrip = "round-trip",
    }
}

config::words! {
    /// Penalty of a lost round for learning schemes.
    PenaltyForm {
        /// Quotient of rounds and R (paper).
        Quotient = "quotient",
        /// Product (authors' code).
        Product = "product",
    }
}

config::words! {
    /// γ of the training of a network of "art-dqn".
    Gammas {
        /// 0.9.
        G0_90 = "0.9",
        /// 0.95.
        G0_95 = "0.95",
        /// 1.
        G1_00 = "1",
        /// 1.05: the paper's best.
        G1_05 = "1.05",
        /// 1.1.
        G1_10 = "1.1",
    }
}
