# Finds MPI for C. MPI_C_COMPILER and MPIEXEC_EXECUTABLE may be bare names such as mpicc.mpich;
# find_package would take those for paths in the current folder.
foreach(program IN ITEMS MPI_C_COMPILER MPIEXEC_EXECUTABLE)
  if(${program} AND NOT IS_ABSOLUTE "${${program}}")
    get_filename_component(name "${${program}}" NAME)
    find_program(found_${program} NAMES ${name})
    mark_as_advanced(found_${program})
    if(NOT found_${program})
      message(FATAL_ERROR "${program}: there is no program ${name}; scripts/setup installs it")
    endif()
    set(${program} ${found_${program}} CACHE FILEPATH "" FORCE)
  endif()
endforeach()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(MPI COMPONENTS C)
if(NOT MPI_C_FOUND)
  message(FATAL_ERROR "No MPI for C was found. Install Open MPI or MPICH (scripts/setup build does), "
                      "or give its compiler: -DMPI_C_COMPILER=/path/to/mpicc")
endif()

# SimGrid's smpicc simulates MPI: programs run under smpirun, and what they share lives in the
# executable, which SimGrid loads once per rank.
set(RILL_SMPI OFF)
if(CMAKE_C_COMPILER MATCHES "smpicc$")
  set(RILL_SMPI ON)
  set(RILL_SHARED OFF)
endif()
