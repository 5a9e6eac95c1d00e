# The libraries of the house, all Debian packages; each is a SYSTEM include.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
foreach(library
    "libuv;libuv1-dev" "libprotobuf-c;libprotobuf-c-dev" "libcrypto;libssl-dev" "libssl;libssl-dev"
    "libsystemd;libsystemd-dev" "jansson;libjansson-dev" "yaml-0.1;libyaml-dev" "zlib;zlib1g-dev"
    "libzstd;libzstd-dev" "libxxhash;libxxhash-dev" "libmicrohttpd;libmicrohttpd-dev" "check;check")
  list(GET library 0 module)
  list(GET library 1 package)
  pkg_check_modules(${module} IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${module}_FOUND)
    message(FATAL_ERROR "${module} is missing: run 'apt-get install ${package}', or ./check, which installs everything")
  endif()
endforeach()
find_program(PROTOC_C protoc-c)
if(NOT PROTOC_C)
  message(FATAL_ERROR "protoc-c is missing: run 'apt-get install protobuf-c-compiler', or ./check, which installs everything")
endif()
