# make install: libraries, headers, pkg-config file, CMake package, manual pages, licence.
include(CMakePackageConfigHelpers)

install(TARGETS ${rill_libraries} EXPORT rillTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/rill DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
foreach(section IN ITEMS 1 3 5 7)
  file(GLOB pages CONFIGURE_DEPENDS man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()

# find_package(rill) gives rill::rill and rill::rill_train, and both with _static.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rill)
install(EXPORT rillTargets NAMESPACE rill:: DESTINATION ${package_dir})
configure_package_config_file(cmake/rillConfig.cmake.in ${PROJECT_BINARY_DIR}/rillConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rillConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rillConfig.cmake ${PROJECT_BINARY_DIR}/rillConfigVersion.cmake
        DESTINATION ${package_dir})

# The public header includes mpi.h and programs call MPI themselves, so rill.pc carries the flags
# of the MPI that rill was built with: cc prog.c $(pkg-config --cflags --libs rill) is enough.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH PC_PREFIX /${pc_dir} /)
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
set(PC_MPI_CFLAGS "")
foreach(folder IN LISTS MPI_C_INCLUDE_DIRS)
  string(APPEND PC_MPI_CFLAGS " -I${folder}")
endforeach()
string(REPLACE ";" " " PC_MPI_LIBS "${MPI_C_LIBRARIES}")
set(PC_COMPRESSION "")
foreach(library IN LISTS train_compression)
  string(APPEND PC_COMPRESSION " -l${library}")
endforeach()
if(NOT RILL_MPI)
  set(PC_MPI_CFLAGS " -DRILL_NO_MPI")
  set(PC_MPI_LIBS "")
endif()
set(PC_TRANSPORT "")
foreach(library IN LISTS rill_transport)
  string(APPEND PC_TRANSPORT " -l${library}")
endforeach()
foreach(name IN ITEMS rill rill_train)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pc_dir})
endforeach()
