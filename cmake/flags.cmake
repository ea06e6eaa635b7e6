# Compiler flags of all our targets (rill_flags), and instruction sets per file (rill_isa_flags).
include(CheckCCompilerFlag)

add_library(rill_flags INTERFACE)
target_compile_definitions(rill_flags INTERFACE _GNU_SOURCE)
# No contraction: SIMD, scalar and every compiler must give the same bits.
target_compile_options(rill_flags INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
  $<$<BOOL:${RILL_WERROR}>:-Werror> -ffp-contract=off -fno-math-errno)
# Fields that were just stored one by one, read as a vector, wait until the store buffer has
# drained, behind stores to memory that another rank reads: a small call loses a tenth to it.
target_compile_options(rill_flags INTERFACE -fno-tree-slp-vectorize)

if(RILL_SANITIZE)
  # -O1: instrumented kernels take minutes to compile at -O3.
  set(sanitize -O1 -fsanitize=${RILL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(rill_flags INTERFACE ${sanitize})
  target_link_options(rill_flags INTERFACE ${sanitize})
endif()

set(isa_flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(isa_flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vbmi2 -mbmi2
                     -mf16c)
set(RILL_ISA_AVX2 OFF)
set(RILL_ISA_AVX512 OFF)
if(RILL_SIMD AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  string(REPLACE ";" " " flags "${isa_flags_avx2}")
  check_c_compiler_flag("${flags}" rill_compiler_has_avx2)
  set(RILL_ISA_AVX2 ${rill_compiler_has_avx2})
  string(REPLACE ";" " " flags "${isa_flags_avx512}")
  check_c_compiler_flag("${flags}" rill_compiler_has_avx512)
  set(RILL_ISA_AVX512 ${rill_compiler_has_avx512})
endif()
target_compile_definitions(rill_flags INTERFACE $<$<BOOL:${RILL_ISA_AVX2}>:RILL_HAVE_AVX2=1>
                                                $<$<BOOL:${RILL_ISA_AVX512}>:RILL_HAVE_AVX512=1>)

# Only files named for an instruction set are compiled for it: the rest must run anywhere.
function(rill_isa_flags)
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME)
    if(name MATCHES "avx512")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${isa_flags_avx512}")
    elseif(name MATCHES "avx2")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${isa_flags_avx2}")
    endif()
  endforeach()
endfunction()
