# Finds MPI for C, unless rill is to be built without it: then MPI::MPI_C stands for "no MPI", and
# all see rill.h without what needs it.
option(RILL_MPI "Communicators over MPI (rill_comm_create)" ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
set(RILL_SMPI OFF)
if(NOT RILL_MPI)
  add_library(MPI::MPI_C INTERFACE IMPORTED)
  set_target_properties(MPI::MPI_C PROPERTIES INTERFACE_COMPILE_DEFINITIONS RILL_NO_MPI)
  return()
endif()

# MPI_C_COMPILER and MPIEXEC_EXECUTABLE may be bare names such as mpicc.mpich;
# find_package would take those for paths in the current folder.
foreach(program IN ITEMS MPI_C_COMPILER MPIEXEC_EXECUTABLE)
  if(${program} AND NOT IS_ABSOLUTE "${${program}}")
    get_filename_component(name "${${program}}" NAME)
    unset(found_${program} CACHE)
    find_program(found_${program} NAMES ${name})
    mark_as_advanced(found_${program})
    if(NOT found_${program})
      message(FATAL_ERROR "${program}: there is no program ${name}; scripts/setup installs it")
    endif()
    set(${program} ${found_${program}} CACHE FILEPATH "" FORCE)
  endif()
endforeach()

# FindMPI keeps what it found, also when another compiler is named: then all of it is looked for
# again.
if(DEFINED RILL_MPI_FOUND_FOR AND NOT RILL_MPI_FOUND_FOR STREQUAL "${MPI_C_COMPILER}")
  get_cmake_property(variables CACHE_VARIABLES)
  list(FILTER variables INCLUDE REGEX "^MPI_(C_|RESULT_C_|.*_LIBRARY$)")
  list(REMOVE_ITEM variables MPI_C_COMPILER)
  foreach(variable IN LISTS variables)
    unset(${variable} CACHE)
  endforeach()
endif()

find_package(MPI COMPONENTS C)
if(NOT MPI_C_FOUND)
  message(FATAL_ERROR "No MPI for C was found. Install Open MPI or MPICH (scripts/setup build "
                      "does), or give its compiler: -DMPI_C_COMPILER=/path/to/mpicc. "
                      "-DRILL_MPI=OFF builds rill without MPI.")
endif()

set(RILL_MPI_FOUND_FOR "${MPI_C_COMPILER}" CACHE INTERNAL
  "The MPI compiler that MPI was found with")

# SimGrid's smpicc simulates MPI: programs run under smpirun, and what they share lives in the
# executable, which SimGrid loads once per rank.
if(CMAKE_C_COMPILER MATCHES "smpicc$")
  set(RILL_SMPI ON)
  set(RILL_SHARED OFF)
endif()
