# Finds what the build can use. Everything but GoogleTest is optional: a missing dependency turns its part off
# and says what that costs.
if(HIR_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
