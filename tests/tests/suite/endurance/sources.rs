//! Sources that are silent, slow or ill, and sessions that are abandoned.
