"""The fault laboratory: experiments that try to lose a row, and figures of how often they failed to."""
