"""What can go wrong around embedded servers, as errors a user can act on. Knows no server."""


class EmbeddedError(Exception):
    """Something outside this program stands in the way: `problem` names it, `remedy` says what to
    do next.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem
        self.remedy = remedy


class DataFolderError(EmbeddedError):
    """The data folder is locked, unusable, or was made by another version."""


class PortInUseError(EmbeddedError):
    """A port that a child must listen on is taken."""


class ServerBinaryError(EmbeddedError):
    """A server's executable is missing, or cannot be run by any account we may use."""


class ChildFailedError(EmbeddedError):
    """A child died, or was never ready, more often than its restart policy allows."""
