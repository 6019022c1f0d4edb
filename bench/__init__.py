"""Load clients that drive a server over the wire, and a floor server to compare with."""
