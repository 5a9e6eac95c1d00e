# unit_tests(peer): every tests/unit/peer/test_*.c becomes the test unit/peer/<file>; nothing is
# registered by hand. Extra libraries follow the name. A test's own deadline, four seconds by default,
# is for a machine that does nothing else; ctest's bounds the whole.
add_custom_target(check_units)   # the programs of all unit tests, for builds that need no more
add_custom_target(check_replays) # of all corpora
add_custom_target(check_fuzzers)

function(unit_tests room)
  add_custom_target(check_units_${room})
  add_dependencies(check_units check_units_${room})
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/unit/${room}/test_*.c")
  foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    set(target "unit_${room}_${stem}")
    add_executable(${target} ${file} "${PROJECT_SOURCE_DIR}/tests/lib/unit_main.c")
    target_link_libraries(${target} PRIVATE ${room} ${ARGN} PkgConfig::check house_warnings)
    add_dependencies(check_units_${room} ${target})
    add_test(NAME "unit/${room}/${stem}" COMMAND ${target})
    set_tests_properties("unit/${room}/${stem}" PROPERTIES LABELS unit TIMEOUT 300
      SKIP_RETURN_CODE 77 ENVIRONMENT "COPPELIUS_SHARED=${PROJECT_SOURCE_DIR}/../shared;COPPELIUS_TESTS=${PROJECT_SOURCE_DIR}/tests;CK_DEFAULT_TIMEOUT=120;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lib/tsan.supp")
  endforeach()
endfunction()

# fuzz_target(frame proto): tests/fuzz/fuzz_frame.c with the room's library. Where libFuzzer is on
# it is a fuzzer; everywhere its corpus tests/fuzz/corpus/frame is replayed as a test.
function(fuzz_target name)
  add_executable(fuzz_${name}_replay "${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_${name}.c"
                 "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.c")
  target_link_libraries(fuzz_${name}_replay PRIVATE ${ARGN} house_warnings)
  add_dependencies(check_replays fuzz_${name}_replay)
  add_test(NAME "fuzz/${name}" COMMAND fuzz_${name}_replay
           "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  set_tests_properties("fuzz/${name}" PROPERTIES LABELS fuzz TIMEOUT 120)
  if(COPPELIUS_FUZZ)
    add_executable(fuzz_${name} "${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_${name}.c")
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(fuzz_${name} PRIVATE ${ARGN} house_warnings)
    add_dependencies(check_fuzzers fuzz_${name})
  endif()
endfunction()
