# What pip's wheel has of this tree (pyproject.toml): librill, and librill_cuda where it is built.
# A wheel has no links, so that each has one name. python/tools/rill_wheel.py adds UCX.
add_custom_target(wheel DEPENDS rill)
install(FILES $<TARGET_FILE:rill> DESTINATION rill RENAME librill.so COMPONENT wheel)
if(TARGET rill_cuda)
  add_dependencies(wheel rill_cuda)
  install(FILES $<TARGET_FILE:rill_cuda> DESTINATION rill RENAME librill_cuda.so COMPONENT wheel)
endif()
