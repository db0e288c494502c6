"""Errors of embedded servers, with a remedy. Knows no server."""


class EmbeddedError(Exception):
    """An error outside this program: `problem` names it, `remedy` says what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem = problem
        self.remedy = remedy


class DataFolderError(EmbeddedError):
    """The data folder is locked, unusable, or of another version."""


class PortInUseError(EmbeddedError):
    """A port that a child needs is in use."""


class ServerBinaryError(EmbeddedError):
    """A server's executable is missing, or no usable account can run it."""


class OutsideServerError(EmbeddedError):
    """An outside server does not answer, or is not usable."""


class ChildFailedError(EmbeddedError):
    """A child failed more often than its restart policy allows. `log_tail` is the end of its
    log.
    """

    def __init__(self, problem: str, remedy: str, log_tail: str = "") -> None:
        super().__init__(problem, remedy)
        self.log_tail = log_tail

    def __str__(self) -> str:
        if not self.log_tail:
            return super().__str__()
        return f"{self.problem}\n{self.log_tail}\n{self.remedy}"
