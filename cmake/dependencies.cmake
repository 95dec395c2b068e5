# Finds what the build can use. Everything but GoogleTest is optional: what is missing (or refused by
# -DHIR_WITH_X=OFF) turns its part off, and the table at the end says what that costs.
#
# For each X of GRPC SPDLOG CLI11 TOML OPENSSL PROMETHEUS HWLOC LLVM ONEDNN UCX MPI CUDA NVRTC CUBLASLT CUDNN
# NCCL BENCHMARK:
#   HIR_WITH_X   cache option: AUTO (use it when found), ON (an error when not found), OFF
#   HIR_HAVE_X   the outcome: TRUE or FALSE
#   hir_x        INTERFACE library with the include folders (as SYSTEM) and libraries; empty when off.
#                A folder asks for it by `hir_library(... WITH X)`: see hir.cmake.
# HIR_HAVE_SERVICE: all that the daemon and the workers need was found.

# hir_dependency(X COST WHAT NEEDED...): settles HIR_HAVE_X (every variable or target NEEDED is there), makes the
# target hir_x, and notes the table's row: WHAT was found, or the COST of doing without.
set(hir_dependency_rows "")
macro(hir_dependency x cost what)
  set(HIR_WITH_${x} AUTO CACHE STRING "use ${x}: AUTO, ON or OFF")
  set_property(CACHE HIR_WITH_${x} PROPERTY STRINGS AUTO ON OFF)
  string(TOLOWER hir_${x} hir_target)
  add_library(${hir_target} INTERFACE)
  set(HIR_HAVE_${x} TRUE)
  foreach(hir_needed ${ARGN})
    if(NOT TARGET ${hir_needed} AND NOT ${hir_needed})
      set(HIR_HAVE_${x} FALSE)
    endif()
  endforeach()
  if(HIR_WITH_${x} STREQUAL "OFF")
    set(HIR_HAVE_${x} FALSE)
    list(APPEND hir_dependency_rows "${x}|off (HIR_WITH_${x}=OFF)|${cost}")
  elseif(HIR_HAVE_${x})
    list(APPEND hir_dependency_rows "${x}|${what}|")
  elseif(HIR_WITH_${x} STREQUAL "ON")
    message(FATAL_ERROR "HIR_WITH_${x}=ON, but it was not found (./run setup installs it)")
  else()
    list(APPEND hir_dependency_rows "${x}|off (not found)|${cost}")
  endif()
endmacro()

# --- the processes: gRPC and Protocol Buffers, log, command line ---------------------------------------------
find_package(Protobuf QUIET)
if(Protobuf_FOUND)
  find_package(gRPC CONFIG QUIET)
endif()
find_program(HIR_GRPC_CPP_PLUGIN grpc_cpp_plugin)
find_program(HIR_GRPC_PYTHON_PLUGIN grpc_python_plugin)
hir_dependency(GRPC "no daemon, no workers, no Python client" "gRPC ${gRPC_VERSION}, protobuf ${Protobuf_VERSION}"
               gRPC::grpc++ gRPC::grpc++_reflection protobuf::libprotobuf protobuf::protoc HIR_GRPC_CPP_PLUGIN
               HIR_GRPC_PYTHON_PLUGIN)
if(HIR_HAVE_GRPC)
  target_link_libraries(hir_grpc INTERFACE gRPC::grpc++_reflection gRPC::grpc++ protobuf::libprotobuf)
endif()

find_package(fmt CONFIG QUIET)
find_package(spdlog CONFIG QUIET)
hir_dependency(SPDLOG "no daemon, no workers" "spdlog ${spdlog_VERSION}, fmt ${fmt_VERSION}" spdlog::spdlog fmt::fmt)
if(HIR_HAVE_SPDLOG)
  target_link_libraries(hir_spdlog INTERFACE spdlog::spdlog fmt::fmt)
endif()

find_path(HIR_CLI11_INCLUDE CLI/CLI.hpp)
hir_dependency(CLI11 "no daemon, no workers" ${HIR_CLI11_INCLUDE}/CLI/CLI.hpp HIR_CLI11_INCLUDE)
if(HIR_HAVE_CLI11)
  target_include_directories(hir_cli11 SYSTEM INTERFACE ${HIR_CLI11_INCLUDE})
endif()

find_path(HIR_TOML_INCLUDE toml++/toml.h)
hir_dependency(TOML "no daemon, no workers" ${HIR_TOML_INCLUDE}/toml++/toml.h HIR_TOML_INCLUDE)
if(HIR_HAVE_TOML)
  target_include_directories(hir_toml SYSTEM INTERFACE ${HIR_TOML_INCLUDE})
endif()

find_package(OpenSSL 3 QUIET)
hir_dependency(OPENSSL "no daemon, no workers" "OpenSSL ${OPENSSL_VERSION}" OpenSSL::SSL OpenSSL::Crypto)
if(HIR_HAVE_OPENSSL)
  target_link_libraries(hir_openssl INTERFACE OpenSSL::SSL OpenSSL::Crypto)
endif()

find_package(prometheus-cpp CONFIG QUIET)
find_package(civetweb CONFIG QUIET)
hir_dependency(PROMETHEUS "hostird refuses --metrics" "prometheus-cpp, civetweb" prometheus-cpp::core
               civetweb::civetweb)
if(HIR_HAVE_PROMETHEUS)
  target_link_libraries(hir_prometheus INTERFACE prometheus-cpp::core civetweb::civetweb)
endif()

set(HIR_HAVE_SERVICE FALSE)
if(HIR_HAVE_OPENSSL AND HIR_HAVE_GRPC AND HIR_HAVE_SPDLOG AND HIR_HAVE_CLI11 AND HIR_HAVE_TOML)
  set(HIR_HAVE_SERVICE TRUE)
endif()

# --- CPU kernels: LLVM -----------------------------------------------------------------------------------------
# The code is written for 19.1 (14 lacks headers it includes); the version file wants major.minor. Linked
# statically: a process that loads the 129 MB shared library pays for its relocations at each start.
find_package(LLVM 19.1 CONFIG QUIET)
hir_dependency(LLVM "no CPU code generation: compiled kernels are refused" "LLVM ${LLVM_PACKAGE_VERSION}" LLVMOrcJIT)
if(HIR_HAVE_LLVM)
  llvm_map_components_to_libnames(hir_llvm_libraries core orcjit native passes)
  target_include_directories(hir_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
  target_link_libraries(hir_llvm INTERFACE ${hir_llvm_libraries})
endif()

# --- CPU matmul: oneDNN. Its CMake package wants OpenCL, so the library is looked for by name ------------------
find_path(HIR_ONEDNN_INCLUDE dnnl.hpp)
find_library(HIR_ONEDNN_LIBRARY dnnl)
hir_dependency(ONEDNN "matmul and linear on CPUs by plain loops, about 50 times slower" "${HIR_ONEDNN_LIBRARY}"
               HIR_ONEDNN_INCLUDE HIR_ONEDNN_LIBRARY)
if(HIR_HAVE_ONEDNN)
  target_include_directories(hir_onednn SYSTEM INTERFACE ${HIR_ONEDNN_INCLUDE})
  target_link_libraries(hir_onednn INTERFACE ${HIR_ONEDNN_LIBRARY} ${CMAKE_DL_LIBS})
endif()

# --- CPU communication: UCX; MPI starts the ranks of hostir-eval -------------------------------------
find_path(HIR_UCX_INCLUDE ucp/api/ucp.h)
find_library(HIR_UCP_LIBRARY ucp)
find_library(HIR_UCS_LIBRARY ucs)
hir_dependency(UCX "workers cannot communicate: programs run on one device" "${HIR_UCP_LIBRARY}"
               HIR_UCX_INCLUDE HIR_UCP_LIBRARY HIR_UCS_LIBRARY)
if(HIR_HAVE_UCX)
  target_include_directories(hir_ucx SYSTEM INTERFACE ${HIR_UCX_INCLUDE})
  target_link_libraries(hir_ucx INTERFACE ${HIR_UCP_LIBRARY} ${HIR_UCS_LIBRARY})
endif()

# The C interface only, so that a machine that runs it needs libmpi alone.
find_path(HIR_MPI_INCLUDE mpi.h PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include)
find_library(HIR_MPI_LIBRARY mpi)
find_program(HIR_MPIRUN mpirun)
hir_dependency(MPI "hostir-eval runs one rank; benchmarks lack the comparison with MPI" "${HIR_MPI_LIBRARY}"
               HIR_MPI_INCLUDE HIR_MPI_LIBRARY)
if(HIR_HAVE_MPI)
  target_include_directories(hir_mpi SYSTEM INTERFACE ${HIR_MPI_INCLUDE})
  target_link_libraries(hir_mpi INTERFACE ${HIR_MPI_LIBRARY})
  target_compile_definitions(hir_mpi INTERFACE OMPI_SKIP_MPICXX)
endif()

# --- which cores belong together ---------------------------------------------------------------------------------
find_path(HIR_HWLOC_INCLUDE hwloc.h)
find_library(HIR_HWLOC_LIBRARY hwloc)
hir_dependency(HWLOC "ranks get cores in the order of the system's numbers" "${HIR_HWLOC_LIBRARY}"
               HIR_HWLOC_INCLUDE HIR_HWLOC_LIBRARY)
if(HIR_HAVE_HWLOC)
  target_include_directories(hir_hwloc SYSTEM INTERFACE ${HIR_HWLOC_INCLUDE})
  target_link_libraries(hir_hwloc INTERFACE ${HIR_HWLOC_LIBRARY})
endif()

# --- GPUs: CUDA headers only; the driver and the libraries are loaded at run time --------------------------------
# The toolkit's, else those of the Python wheels that ./run setup puts into .venv.
file(GLOB hir_cuda_wheels ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu1*)
set(hir_cuda_roots $ENV{CUDA_HOME} /usr/local/cuda ${hir_cuda_wheels})
list(TRANSFORM hir_cuda_roots APPEND /include OUTPUT_VARIABLE hir_cuda_includes)
find_path(HIR_CUDA_INCLUDE cuda.h PATHS ${hir_cuda_includes})
hir_dependency(CUDA "no GPU devices" "${HIR_CUDA_INCLUDE}/cuda.h" HIR_CUDA_INCLUDE)
if(HIR_HAVE_CUDA)
  target_include_directories(hir_cuda SYSTEM INTERFACE ${HIR_CUDA_INCLUDE})
  target_link_libraries(hir_cuda INTERFACE ${CMAKE_DL_LIBS})
endif()

# The compiler of GPU kernels, of which no header is needed. HIR_NVRTC_LIBRARY, a compile definition (empty: none was
# found), is the last place that csrc/codegen/gpu loads it from, after $HOSTIR_NVRTC and what the loader finds.
list(TRANSFORM hir_cuda_roots APPEND /lib64 OUTPUT_VARIABLE hir_cuda_libraries)
list(TRANSFORM hir_cuda_roots APPEND /lib OUTPUT_VARIABLE hir_cuda_wheel_libraries)
find_file(HIR_NVRTC_LIBRARY NAMES libnvrtc.so.13 libnvrtc.so.12 libnvrtc.so
          PATHS ${hir_cuda_libraries} ${hir_cuda_wheel_libraries} PATH_SUFFIXES lib64 lib ${CMAKE_LIBRARY_ARCHITECTURE})
hir_dependency(NVRTC "no GPU code generation, unless HOSTIR_NVRTC names the library at run time" "${HIR_NVRTC_LIBRARY}"
               HIR_NVRTC_LIBRARY)
set(hir_nvrtc_library "")
if(HIR_HAVE_NVRTC)
  set(hir_nvrtc_library ${HIR_NVRTC_LIBRARY})
endif()
target_compile_definitions(hir_nvrtc INTERFACE HIR_NVRTC_LIBRARY="${hir_nvrtc_library}")
target_link_libraries(hir_nvrtc INTERFACE ${CMAKE_DL_LIBS})

# Matrix products: the header; the library, 500 MB of it, is loaded at run time.
find_path(HIR_CUBLASLT_INCLUDE cublasLt.h PATHS ${hir_cuda_includes})
hir_dependency(CUBLASLT "matmul and linear do not run on GPUs" "${HIR_CUBLASLT_INCLUDE}/cublasLt.h"
               HIR_CUBLASLT_INCLUDE)
if(HIR_HAVE_CUBLASLT)
  target_include_directories(hir_cublaslt SYSTEM INTERFACE ${HIR_CUBLASLT_INCLUDE})
  target_link_libraries(hir_cublaslt INTERFACE ${CMAKE_DL_LIBS})
endif()

# Fused attention: headers, of the frontend and of the library, which is loaded at run time.
find_path(HIR_CUDART_INCLUDE cuda_runtime.h PATHS ${hir_cuda_includes})
file(GLOB hir_wheels ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages)
find_path(HIR_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h PATHS ${hir_wheels} PATH_SUFFIXES include)
find_path(HIR_CUDNN_INCLUDE cudnn.h
          PATHS ${hir_cuda_includes} ${hir_wheels}/nvidia/cudnn/include
                ${PROJECT_SOURCE_DIR}/.venv/torch/nvidia/cudnn/include)
hir_dependency(CUDNN "attention on GPUs is made of products" "${HIR_CUDNN_INCLUDE}/cudnn.h"
               HIR_CUDNN_INCLUDE HIR_CUDNN_FRONTEND_INCLUDE HIR_CUDART_INCLUDE)
if(HIR_HAVE_CUDNN)
  target_include_directories(hir_cudnn SYSTEM INTERFACE ${HIR_CUDNN_INCLUDE} ${HIR_CUDNN_FRONTEND_INCLUDE}
                             ${HIR_CUDART_INCLUDE})
  # Without JSON, which we do not use, its headers take half the time to compile.
  target_compile_definitions(hir_cudnn INTERFACE NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING CUDNN_FRONTEND_SKIP_JSON_LIB)
  target_link_libraries(hir_cudnn INTERFACE ${CMAKE_DL_LIBS})
endif()

# NCCL: its header, which includes CUDA's runtime's; the library is loaded at run time.
find_path(HIR_NCCL_INCLUDE nccl.h PATHS ${hir_cuda_includes})
hir_dependency(NCCL "GPUs cannot communicate" "${HIR_NCCL_INCLUDE}/nccl.h" HIR_NCCL_INCLUDE HIR_CUDART_INCLUDE)
if(HIR_HAVE_NCCL)
  target_include_directories(hir_nccl SYSTEM INTERFACE ${HIR_NCCL_INCLUDE} ${HIR_CUDART_INCLUDE})
  target_link_libraries(hir_nccl INTERFACE ${CMAKE_DL_LIBS})
endif()

# --- benchmarks and tests ------------------------------------------------------------------------------------------
find_package(benchmark CONFIG QUIET)
hir_dependency(BENCHMARK "./run bench is not built" "Google Benchmark ${benchmark_VERSION}" benchmark::benchmark)
if(HIR_HAVE_BENCHMARK)
  target_link_libraries(hir_benchmark INTERFACE benchmark::benchmark)
endif()
# Ubuntu's libgtest-dev has GoogleMock as sources only: then both are built from them.
if(HIR_TESTS)
  find_library(HIR_GMOCK_LIBRARY gmock)
  find_path(HIR_GTEST_SOURCE googlemock/CMakeLists.txt PATHS /usr/src/googletest)
  if(NOT HIR_GMOCK_LIBRARY AND HIR_GTEST_SOURCE)
    add_subdirectory(${HIR_GTEST_SOURCE} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
    foreach(name gtest gtest_main gmock gmock_main)
      if(NOT TARGET GTest::${name})
        add_library(GTest::${name} ALIAS ${name})
      endif()
    endforeach()
  else()
    find_package(GTest REQUIRED)
  endif()
  include(GoogleTest)
endif()

function(hir_dependency_table)
  message(STATUS "hostir is built with")
  foreach(row IN LISTS hir_dependency_rows)
    string(REPLACE "|" ";" cells "${row}")
    list(GET cells 0 name)
    list(GET cells 1 what)
    list(GET cells 2 cost)
    string(SUBSTRING "${name}          " 0 10 name)
    if(cost)
      set(cost " -> ${cost}")
    endif()
    message(STATUS "  ${name} ${what}${cost}")
  endforeach()
endfunction()
hir_dependency_table()
