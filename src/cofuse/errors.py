"""The one error for mistakes a user can mend, and the one that no memory is left."""

import errno

#: What libraries say that could not be loaded or could not begin for lack of memory.
_LACK = ("annot allocate memory", "failed to map segment", "can't start new thread")
#: How OpenCV counts that error.
_OPENCV_LACK = -4


class CofuseError(Exception):
    """Bad input or bad options: says what came, what was expected and the remedy, in one line."""


def is_lack_of_memory(error: BaseException) -> bool:
    """Tell whether there was too little memory, whatever a library makes of it."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    return (
        isinstance(error, MemoryError)
        or (type(error).__module__ == "cv2" and getattr(error, "code", 0) == _OPENCV_LACK)
        or any(words in str(error) for words in _LACK)
    )
