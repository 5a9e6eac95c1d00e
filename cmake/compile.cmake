# How every file of the project is compiled. No -ffast-math, no contraction: NUMERICS is to the bit.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-ffp-contract=off -fno-math-errno -fvisibility=hidden)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fno-trapping-math $<$<COMPILE_LANGUAGE:C>:-fexcess-precision=standard>)
endif()

# The warnings of the house; generated code does not get them.
add_library(house_warnings INTERFACE)
target_compile_options(house_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wstrict-prototypes
  -Wmissing-prototypes -Wold-style-definition -Wvla -Wundef -Wcast-qual -Wcast-align
  -Wwrite-strings -Wformat=2 -Wswitch-enum -Wimplicit-fallthrough -Wnull-dereference
  -Wdouble-promotion)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  target_compile_options(house_warnings INTERFACE
    -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wjump-misses-init
    # A sentence or a name that does not fit is cut, as its header says; paths are checked first.
    -Wno-format-truncation)
endif()
if(CMAKE_C_COMPILER_ID MATCHES "Clang" AND (COPPELIUS_SANITIZE OR COPPELIUS_FUZZ))
  # An instrumented loop may not be vectorised as its pragma asks.
  target_compile_options(house_warnings INTERFACE -Wno-pass-failed)
endif()
if(COPPELIUS_WERROR)
  target_compile_options(house_warnings INTERFACE -Werror)
endif()

if(COPPELIUS_SANITIZE)
  add_compile_options(-fsanitize=${COPPELIUS_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${COPPELIUS_SANITIZE})
  if(COPPELIUS_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  # The sanitizers' instrumentation makes this warning see ghosts.
  target_compile_options(house_warnings INTERFACE -Wno-null-dereference)
endif()
if(COPPELIUS_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(COPPELIUS_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()
if(COPPELIUS_HARDEN)
  add_compile_options(-fstack-protector-strong -fPIE)
  add_compile_definitions(_FORTIFY_SOURCE=2)
  add_link_options(-pie -Wl,-z,relro,-z,now,-z,noexecstack)
endif()
