# librill_cuda: kernels on device memory, where nvcc is; and the same kernels emulated on the host,
# for tests without a GPU.
set(RILL_CUDA auto CACHE STRING "Build librill_cuda: ON, OFF, or auto (where nvcc is found)")
# Machine code for what it is measured on; and PTX, which the driver compiles at the first use: that
# of 80 for what is between, that of 90 for what came later. Before 80 the kernels lack
# instructions, and shared memory.
set(RILL_CUDA_ARCHITECTURES "80-virtual;90" CACHE STRING
  "Compute capabilities of librill_cuda, 80 or more, as CMAKE_CUDA_ARCHITECTURES has them")
set_property(CACHE RILL_CUDA PROPERTY STRINGS auto ON OFF)
include(CheckLanguage)

file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
set(RILL_CUDA_FOUND OFF)
set(RILL_CUDA_EMULATED OFF)
if(RILL_CUDA AND NOT RILL_SMPI AND NOT RILL_SANITIZE)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(rill_nvcc nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda/bin)
    if(rill_nvcc)
      set(CMAKE_CUDA_COMPILER ${rill_nvcc})
    endif()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${RILL_CUDA_ARCHITECTURES})
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(RILL_CUDA_FOUND ON)
  elseif(NOT RILL_CUDA STREQUAL "auto")
    message(FATAL_ERROR "RILL_CUDA is ON, and nvcc was not found (CUDA_PATH, PATH)")
  else()
    message(STATUS "nvcc was not found: librill_cuda is not built")
  endif()
  check_language(CXX)
  if(CMAKE_CXX_COMPILER AND RILL_TESTS)
    enable_language(CXX)
    set(RILL_CUDA_EMULATED ON)
  endif()
endif()

if(RILL_CUDA_FOUND)
  add_library(rill_cuda SHARED ${cuda_sources})
  # No contraction, as on the host: both must give the same bits.
  target_compile_options(rill_cuda PRIVATE -O3 --fmad=false -Xcompiler=-Wall,-Wextra
    $<$<BOOL:${RILL_WERROR}>:-Werror=all-warnings>)
  set_target_properties(rill_cuda PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON
    CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  install(TARGETS rill_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # Measures on a GPU; not part of all.
  add_executable(bench_cuda EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/cuda/bench_cuda.cu)
  target_compile_options(bench_cuda PRIVATE -O3 $<$<BOOL:${RILL_WERROR}>:-Werror=all-warnings>)
  target_link_libraries(bench_cuda PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(bench_cuda PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static)
endif()

if(RILL_CUDA_EMULATED)
  set(emulated ${PROJECT_BINARY_DIR}/cuda-emulated)
  foreach(source IN LISTS cuda_sources) # CMake would give a .cu to nvcc
    get_filename_component(name ${source} NAME_WE)
    file(WRITE ${emulated}/${name}.cpp.new "#include \"${source}\"\n")
    configure_file(${emulated}/${name}.cpp.new ${emulated}/${name}.cpp COPYONLY)
    list(APPEND emulated_sources ${emulated}/${name}.cpp)
  endforeach()
  add_library(rill_cuda_emulated MODULE ${emulated_sources}
    ${PROJECT_SOURCE_DIR}/src/cuda/emulate.cpp ${PROJECT_SOURCE_DIR}/src/cuda/emulate_queue.cpp)
  target_include_directories(rill_cuda_emulated PRIVATE ${PROJECT_SOURCE_DIR}/src/cuda)
  target_compile_definitions(rill_cuda_emulated PRIVATE RILL_EMULATE)
  # Fibers jump between stacks, which fortified functions take for an error.
  target_compile_options(rill_cuda_emulated PRIVATE -O2 -Wall -Wextra -Wshadow -Wno-unknown-pragmas
    -ffp-contract=off -U_FORTIFY_SOURCE $<$<BOOL:${RILL_WERROR}>:-Werror>)
  set_target_properties(rill_cuda_emulated PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON
    CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/cuda)
endif()
