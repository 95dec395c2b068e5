# Compiler flags of every target, and ccache and mold where they are installed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)  # The target all_verify_interface_header_sets.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")  # -g1: enough for stack traces, half the link time of -g.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

option(HIR_TESTS "build the tests" ON)
set(HIR_SANITIZE "" CACHE STRING "sanitizers for every target: address,undefined or thread")
option(HIR_WARNINGS_ARE_ERRORS "for compilers that are not tried here: OFF" ON)
option(HIR_FUZZ "build the libFuzzer targets (needs Clang)" OFF)

find_program(HIR_CCACHE ccache)
if(HIR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HIR_CCACHE})
endif()

add_library(hir_flags INTERFACE)
target_include_directories(hir_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(hir_flags INTERFACE -Wall -Wextra -Werror -Wswitch-enum -Wconversion)
if(NOT HIR_WARNINGS_ARE_ERRORS)
  target_compile_options(hir_flags INTERFACE -Wno-error)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # At -O3 GCC 12's flow warnings err, on std::string for one (its bug 105651): the other builds hold the line.
  target_compile_options(hir_flags INTERFACE -Wno-error -Wno-restrict)
  # What is packed names no folder of the machine that made it.
  target_compile_options(hir_flags INTERFACE -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
endif()
find_program(HIR_MOLD mold)
if(HIR_MOLD)
  target_link_options(hir_flags INTERFACE -fuse-ld=mold)
endif()
find_package(Threads REQUIRED)
target_link_libraries(hir_flags INTERFACE Threads::Threads)
if(HIR_SANITIZE)
  # -O1: at -O2 GCC's flow passes take half of the time that instrumented code compiles for (9.2 s of a file, 5.5).
  target_compile_options(hir_flags INTERFACE -fsanitize=${HIR_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all -O1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # Its flow warnings err on instrumented code; other builds keep them.
    target_compile_options(hir_flags INTERFACE -Wno-maybe-uninitialized -Wno-stringop-overflow)
  endif()
  target_link_options(hir_flags INTERFACE -fsanitize=${HIR_SANITIZE})
endif()
if(HIR_FUZZ)
  target_compile_options(hir_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
