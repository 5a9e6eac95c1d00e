# room(peer STANDS_ON base proto FILES link.c … [LIBRARIES PkgConfig::libuv …])
# A room is a static library; includes are spelled from the root ("peer/peer.h").
function(room name)
  cmake_parse_arguments(ROOM "" "" "STANDS_ON;FILES;LIBRARIES" ${ARGN})
  if(ROOM_FILES)
    add_library(${name} STATIC ${ROOM_FILES})
    target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${name} PUBLIC ${ROOM_STANDS_ON} ${ROOM_LIBRARIES} Threads::Threads m
                                  PRIVATE house_warnings)
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${name} INTERFACE ${ROOM_STANDS_ON} ${ROOM_LIBRARIES})
  endif()
endfunction()

# room_proto(proto peer.proto ctl.proto …): protobuf-c code, its own target without our warnings,
# included as <peer.pb-c.h>.
function(room_proto room)
  set(generated "")
  set(out "${CMAKE_CURRENT_BINARY_DIR}/generated")
  file(MAKE_DIRECTORY "${out}")
  foreach(schema ${ARGN})
    get_filename_component(stem ${schema} NAME_WE)
    add_custom_command(
      OUTPUT "${out}/${stem}.pb-c.c" "${out}/${stem}.pb-c.h"
      COMMAND ${PROTOC_C} --c_out=${out} --proto_path=${CMAKE_CURRENT_SOURCE_DIR} ${schema}
      DEPENDS ${schema} VERBATIM)
    list(APPEND generated "${out}/${stem}.pb-c.c")
  endforeach()
  add_library(${room}_schemas STATIC ${generated})
  target_include_directories(${room}_schemas SYSTEM PUBLIC "${out}")
  target_link_libraries(${room}_schemas PUBLIC PkgConfig::libprotobuf-c)
  target_link_libraries(${room} PUBLIC ${room}_schemas)
endfunction()

# man_page(coppeliusctl 1 ctl): the page that the folder's man.c prints from the room's tables.
function(man_page program section room)
  add_executable(${program}_man man.c)
  target_link_libraries(${program}_man PRIVATE ${room} house_warnings)
  set(page "${CMAKE_CURRENT_BINARY_DIR}/${program}.${section}")
  add_custom_command(OUTPUT "${page}" COMMAND ${program}_man > "${page}" DEPENDS ${program}_man VERBATIM)
  add_custom_target(${program}_page ALL DEPENDS "${page}")
  add_dependencies(${program} ${program}_page) # Who builds the program alone can install both.
  install(FILES "${page}" DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endfunction()
