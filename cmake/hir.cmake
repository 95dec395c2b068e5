# hir_library(NAME DIR DEPS...): one library per folder. Every *.cc and *.h in DIR is in it, so a new
# source file needs no edit here. DEPS are the only folders it may include (tests/tidy checks).
function(hir_library name dir)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.cc)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.h)
  add_library(${name} STATIC ${sources})
  target_sources(${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
  target_link_libraries(${name} PUBLIC hir_flags ${ARGN})
endfunction()

# hir_tests(DIR DEPS...): every DIR/*_test.cc becomes one test binary of the same name. PRE_TEST: cases are
# discovered when ctest starts, so a new golden file is a new test without a rebuild.
function(hir_tests dir)
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*_test.cc)
  foreach(source ${tests})
    cmake_path(GET source STEM name)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${ARGN} GTest::gmock GTest::gtest_main)
    gtest_discover_tests(${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} DISCOVERY_MODE PRE_TEST)
  endforeach()
endfunction()
