# What pip's wheel has of this tree (pyproject.toml): librill, librill_train, and librill_cuda where
# it is built. A wheel has no links, so that each has one name. python/tools/rill_wheel.py adds what
# they need.
add_custom_target(wheel)
foreach(library IN ITEMS rill rill_train rill_cuda)
  if(TARGET ${library})
    add_dependencies(wheel ${library})
    install(FILES $<TARGET_FILE:${library}> DESTINATION rill RENAME lib${library}.so
            COMPONENT wheel)
  endif()
endforeach()
