# hir_proto(NAME DIR): every DIR/hostir/v1/*.proto becomes C++ (messages and gRPC services) in the static library
# NAME, and Python in the target python_stubs; DIR/etcd/*.proto, which the daemon alone speaks, C++. Does nothing
# without gRPC.
#
# C++:    `#include "hostir/v1/x.pb.h"`, `"hostir/v1/x.grpc.pb.h"`; generated code keeps its own warnings.
# Python: <build folder>/python/hostir/v1/x_pb2.py, x_pb2_grpc.py and x_pb2.pyi. With python/ in front of that
#         folder on PYTHONPATH they are hostir.v1.x_pb2, since the package hostir extends its __path__
#         (pkgutil.extend_path). An installed package holds them in the same place.
function(hir_proto name dir)
  if(NOT HIR_HAVE_GRPC)
    return()
  endif()
  set(root ${PROJECT_SOURCE_DIR}/${dir})
  set(cpp_out ${PROJECT_BINARY_DIR}/generated)
  set(python_out ${PROJECT_BINARY_DIR}/python)
  file(GLOB protos CONFIGURE_DEPENDS RELATIVE ${root} ${root}/hostir/v1/*.proto ${root}/etcd/*.proto)
  file(MAKE_DIRECTORY ${cpp_out} ${python_out}/hostir/v1)
  file(TOUCH ${python_out}/hostir/v1/__init__.py)

  set(absolute ${protos})
  list(TRANSFORM absolute PREPEND ${root}/)
  set(cpp_files "")
  set(python_files "")
  foreach(proto ${protos})
    cmake_path(REMOVE_EXTENSION proto OUTPUT_VARIABLE stem)
    set(cpp ${cpp_out}/${stem}.pb.cc ${cpp_out}/${stem}.pb.h ${cpp_out}/${stem}.grpc.pb.cc ${cpp_out}/${stem}.grpc.pb.h)
    add_custom_command(
      OUTPUT ${cpp}
      COMMAND protobuf::protoc -I ${root} --cpp_out=${cpp_out} --grpc_out=${cpp_out}
              --plugin=protoc-gen-grpc=${HIR_GRPC_CPP_PLUGIN} ${proto}
      DEPENDS ${absolute} VERBATIM)
    list(APPEND cpp_files ${cpp})
    if(NOT stem MATCHES "^hostir/")
      continue()
    endif()
    set(python ${python_out}/${stem}_pb2.py ${python_out}/${stem}_pb2_grpc.py)
    add_custom_command(
      OUTPUT ${python}
      COMMAND protobuf::protoc -I ${root} --python_out=${python_out} --pyi_out=${python_out} --grpc_out=${python_out}
              --plugin=protoc-gen-grpc=${HIR_GRPC_PYTHON_PLUGIN} ${proto}
      DEPENDS ${absolute} VERBATIM)
    list(APPEND python_files ${python})
  endforeach()

  add_library(${name} STATIC ${cpp_files})
  target_include_directories(${name} SYSTEM PUBLIC ${cpp_out})
  target_compile_options(${name} PRIVATE -w $<$<CONFIG:RelWithDebInfo>:-O1>)
  target_link_libraries(${name} PUBLIC hir_flags hir_grpc)
  add_custom_target(python_stubs ALL DEPENDS ${python_files})
endfunction()

# hir_python_ops(): what the Python client knows of the op table, made by python/op_table.py:
# <build folder>/python/hostir/_op_table.json and _pointwise.py, as part of the target python_stubs.
function(hir_python_ops)
  set(out ${PROJECT_BINARY_DIR}/python/hostir)
  set(maker ${PROJECT_SOURCE_DIR}/python/op_table.py)
  file(MAKE_DIRECTORY ${out})
  add_custom_command(
    OUTPUT ${out}/_op_table.json ${out}/_pointwise.py
    COMMAND ${HIR_PYTHON} -B ${maker} json > ${out}/_op_table.json
    COMMAND ${HIR_PYTHON} -B ${maker} python > ${out}/_pointwise.py
    DEPENDS ${maker} ${PROJECT_SOURCE_DIR}/csrc/fusion/fusion_ops.def VERBATIM)
  add_custom_target(python_ops ALL DEPENDS ${out}/_op_table.json ${out}/_pointwise.py)
  if(TARGET python_stubs)
    add_dependencies(python_stubs python_ops)
  endif()
endfunction()
