"""What untrusted clients send and receive: headers, codes, limits. Shared by gateway and client. Pure."""
