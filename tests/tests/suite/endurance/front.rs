//! Connections, requests and bodies that would take the HTTP front away from everybody else.
