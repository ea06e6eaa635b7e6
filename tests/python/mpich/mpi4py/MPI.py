"""As much of mpi4py as rill's collectives and reducers need, over MPICH by ctypes. Its handles are
numbers, Open MPI's pointers."""

import atexit
import ctypes
import ctypes.util

_mpich = ctypes.CDLL(ctypes.util.find_library("mpich") or "libmpich.so.12", mode=ctypes.RTLD_GLOBAL)
THREAD_MULTIPLE = 3
_provided = ctypes.c_int()
_mpich.MPI_Init_thread(None, None, THREAD_MULTIPLE, ctypes.byref(_provided))
atexit.register(_mpich.MPI_Finalize)


class _Handle:
    def __init__(self, value):
        self.value = ctypes.c_int(value)


class Comm(_Handle):
    def _number(self, function):
        number = ctypes.c_int()
        function(self.value, ctypes.byref(number))
        return number.value

    def Get_rank(self):
        return self._number(_mpich.MPI_Comm_rank)

    def Get_size(self):
        return self._number(_mpich.MPI_Comm_size)

    def Abort(self, status):
        _mpich.MPI_Abort(self.value, status)


class Info(_Handle):
    pass


COMM_WORLD, INFO_NULL = Comm(0x44000000), Info(0x1C000000)  # of MPICH's ABI


def _sizeof(kind):
    return ctypes.sizeof(ctypes.c_int)


def _addressof(handle):
    return ctypes.addressof(handle.value)


def Is_initialized():
    return True


def Is_finalized():
    flag = ctypes.c_int()
    _mpich.MPI_Finalized(ctypes.byref(flag))
    return bool(flag.value)


def Query_thread():
    return _provided.value


def Get_library_version():
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    _mpich.MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode()
