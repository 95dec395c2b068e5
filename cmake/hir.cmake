# The words of CMakeLists.txt files: hir_library, hir_embed, hir_binary, hir_tests, hir_mpi_test, hir_pytest.

option(HIR_UNITY "libraries are compiled twelve files at a time: half the time, where all are compiled")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

# hir_library(NAME DIR DEPS... [PARTS DIR...] [WITH X...]): one library per folder. Every *.cc and *.h in DIR is in
# it, so a new source file needs no edit here. DEPS are the only folders it may include (tests/tidy checks). PARTS:
# folders whose files are in the library too.
#
# A file *_main.cc or main.cc is a program (hir_binary), *_test.cc a test (hir_tests): neither is in the library.
#
# WITH X: the folder is the one that uses the optional dependency X (dependencies.cmake: LLVM, UCX, ...). When X
# is there, every .cc but no_*.cc is compiled and the target hir_x is linked; when it is not, only the stubs
# no_*.cc are. Either way the library exists and offers the same functions, so nothing else asks about X.
# A header that includes a vendor's is private to the folder and not among those that must stand alone. One whose .cc
# includes it first, as tests/tidy asks of all, is shown to by that.
function(hir_library name dir)
  cmake_parse_arguments(arg "" "" "PARTS;WITH" ${ARGN})
  set(folders ${dir} ${arg_PARTS})
  list(TRANSFORM folders PREPEND ${PROJECT_SOURCE_DIR}/)
  list(TRANSFORM folders APPEND /*.cc OUTPUT_VARIABLE source_patterns)
  list(TRANSFORM folders APPEND /*.h OUTPUT_VARIABLE header_patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${source_patterns})
  file(GLOB headers CONFIGURE_DEPENDS ${header_patterns})
  list(FILTER sources EXCLUDE REGEX "/([^/]*_)?(main|test)\\.cc$")
  set(stubs "")
  if(arg_WITH)
    set(stubs ${sources})
    list(FILTER stubs INCLUDE REGEX "/no_[^/]*\\.cc$")
  endif()
  set(have TRUE)
  foreach(x ${arg_WITH})
    if(NOT DEFINED HIR_HAVE_${x})
      message(FATAL_ERROR "${dir} asks for ${x}, which dependencies.cmake does not look for")
    endif()
    if(NOT HIR_HAVE_${x})
      set(have FALSE)
    endif()
  endforeach()
  set(vendor "")
  if(have)
    list(REMOVE_ITEM sources ${stubs} "")
    foreach(x ${arg_WITH})
      string(TOLOWER hir_${x} target)
      list(APPEND vendor ${target})
    endforeach()
  else()
    set(sources ${stubs})
  endif()
  if(arg_WITH)
    foreach(header ${headers})
      string(CONCAT vendors "^#include [<\"](llvm|uc[pst]|grpc|google|hostir|spdlog|CLI|toml|openssl|hwloc|"
                            "prometheus|civetweb|mpi|dnnl|oneapi|cuda|cublas|cudnn|nvrtc|nccl)")
      file(STRINGS ${header} includes REGEX ${vendors})
      if(includes)
        list(REMOVE_ITEM headers ${header})
      endif()
    endforeach()
  endif()
  foreach(header ${headers})
    cmake_path(REPLACE_EXTENSION header .cc OUTPUT_VARIABLE source)
    if(source IN_LIST sources)
      list(REMOVE_ITEM headers ${header})
    endif()
  endforeach()
  if(NOT sources)  # Headers alone.
    add_library(${name} INTERFACE)
    target_sources(${name} INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
    target_link_libraries(${name} INTERFACE hir_flags ${arg_UNPARSED_ARGUMENTS})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${HIR_UNITY})
  target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
  target_link_libraries(${name} PUBLIC hir_flags ${arg_UNPARSED_ARGUMENTS} PRIVATE ${vendor})
endfunction()

# hir_embed(NAME DIR FUNCTION HEADER): the library NAME gets the files of DIR (pages, not sources) as bytes, by
# FUNCTION, which HEADER declares: a program needs no files beside it.
function(hir_embed name dir function header)
  set(out ${PROJECT_BINARY_DIR}/generated/${dir}.cc)
  set(maker ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.html ${PROJECT_SOURCE_DIR}/${dir}/*.css
       ${PROJECT_SOURCE_DIR}/${dir}/*.js)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DHEADER=${header} -DFUNCTION=${function} "-DFILES=${files}" -P ${maker}
    DEPENDS ${maker} ${files} VERBATIM)
  target_sources(${name} PRIVATE ${out})
endfunction()

# hir_binary(NAME FILE DEPS...): one program. In a bundle its shared libraries are in ../lib: by RPATH, since RUNPATH
# does not reach what libraries need of each other.
function(hir_binary name file)
  add_executable(${name} ${PROJECT_SOURCE_DIR}/${file})
  target_link_libraries(${name} PRIVATE hir_flags ${ARGN})
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
endfunction()

set(HIR_TEST_TIMEOUT 120 CACHE STRING "seconds after which a test has failed")

# Tests that find more under the sanitizers: of what parses, plans and compiles. ./run test builds and runs those of
# what parses so, too; ./run test --preset asan all of them.
add_custom_target(sanitized_tests)
add_custom_target(parsing_tests)

# hir_sanitized(TARGET LABEL...): TARGET is one of those that its labels, `sanitized` and `parses`, say.
function(hir_sanitized target)
  if("sanitized" IN_LIST ARGN)
    add_dependencies(sanitized_tests ${target})
  endif()
  if("parses" IN_LIST ARGN)
    add_dependencies(parsing_tests ${target})
  endif()
endfunction()

# hir_tests(DIR DEPS... [LABELS l...] [TIMEOUT s]): every DIR/*_test.cc becomes one test binary of the same name.
# PRE_TEST: cases are discovered when ctest starts, so a new golden file is a new test without a rebuild. Labels:
# hir_sanitized.
function(hir_tests dir)
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${HIR_TEST_TIMEOUT})
  endif()
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*_test.cc)
  foreach(source ${tests})
    cmake_path(GET source STEM name)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${arg_UNPARSED_ARGUMENTS} GTest::gmock GTest::gtest_main)
    target_compile_options(${name} PRIVATE -O1)  # Its own code: a sixth less time to compile than at -O2.
    hir_sanitized(${name} ${arg_LABELS})
    gtest_discover_tests(${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                         NO_PRETTY_VALUES  # Names are the cases', not the bytes or addresses of their values.
                         PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  endforeach()
endfunction()

# hir_mpi_test(NAME COMMAND ARG... [RANKS n...] [LABELS l...] [TIMEOUT s] [SKIP r]): runs COMMAND by mpirun on n ranks,
# once for each n (1, 2 and 4 when left out), as the test NAME.n labelled mpi. Ranks may outnumber the processors, and
# yield them when they wait. A test that prints the expression SKIP counts as skipped.
function(hir_mpi_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;SKIP" "COMMAND;RANKS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${HIR_TEST_TIMEOUT})
  endif()
  if(NOT HIR_HAVE_MPI OR NOT HIR_MPIRUN)
    return()
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 1 2 4)
  endif()
  foreach(ranks ${arg_RANKS})
    add_test(NAME ${name}.${ranks} COMMAND ${HIR_MPIRUN} -n ${ranks} --oversubscribe --bind-to none ${arg_COMMAND}
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}.${ranks} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "mpi;${arg_LABELS}" PROCESSORS 2
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_mpi_yield_when_idle=1")
    if(arg_SKIP)
      set_tests_properties(${name}.${ranks} PROPERTIES SKIP_REGULAR_EXPRESSION "${arg_SKIP}")
    endif()
  endforeach()
endfunction()

# The Python of the tests: -DHIR_PYTHON=, or the virtual environment of ./run setup, else the system's.
if(NOT HIR_PYTHON)
  set(HIR_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  if(NOT EXISTS ${HIR_PYTHON})
    set(HIR_PYTHON /usr/bin/python3)
  endif()
endif()

execute_process(COMMAND ${HIR_PYTHON} -m pytest --version RESULT_VARIABLE hir_pytest_missing OUTPUT_QUIET ERROR_QUIET)
if(HIR_TESTS AND hir_pytest_missing)
  message(STATUS "tests in Python are left out: ${HIR_PYTHON} has no pytest (./run setup makes .venv)")
endif()

# hir_pytest(DIR [LABELS l...] [TIMEOUT s]): every DIR/test_*.py becomes one test, named by its path. It finds the
# client package in python/, the generated stubs in the build folder, and that folder as $HOSTIR_BUILD_DIR. Where the
# build has a service, $HOSTIR_TESTS_NEED_DAEMON says so: a daemon that is not there is a failure, then. -v names a case
# before it runs, so that one that hangs is known too.
function(hir_pytest dir)
  if(hir_pytest_missing)
    return()
  endif()
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${HIR_TEST_TIMEOUT})
  endif()
  set(environment "PYTHONPATH=${PROJECT_SOURCE_DIR}/python:${PROJECT_BINARY_DIR}/python"
                  "HOSTIR_BUILD_DIR=${PROJECT_BINARY_DIR}")
  if(HIR_HAVE_SERVICE)
    list(APPEND environment HOSTIR_TESTS_NEED_DAEMON=1)
  endif()
  file(GLOB tests CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${dir}/test_*.py)
  foreach(test ${tests})
    add_test(NAME ${test} COMMAND ${HIR_PYTHON} -B -m pytest -v -rs --tb=short -p no:cacheprovider ${test}
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "python;${arg_LABELS}"
                         ENVIRONMENT "${environment}"
                         # The longest first, where no earlier run has said how long each takes.
                         COST ${arg_TIMEOUT}
                         # pytest's last line where nothing ran: the reasons are above it.
                         SKIP_REGULAR_EXPRESSION "=+ [0-9]+ skipped in ")
  endforeach()
endfunction()
