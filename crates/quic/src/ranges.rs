//! Sets of integer ranges, for acknowledgements and stream data.
