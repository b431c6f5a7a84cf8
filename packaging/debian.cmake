# Debian packages by CPack: gpulet and gpulet-backend. Their dependencies on libraries are those that dpkg-shlibdeps
# finds in the programs.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gpulet)
# As Debian's own tools, from DEBFULLNAME and DEBEMAIL. The other address is read by nobody.
set(contact "gpulet maintainers <gpulet@users.noreply.github.com>")
if(DEFINED ENV{DEBEMAIL} AND DEFINED ENV{DEBFULLNAME})
  set(contact "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(GPULET_PACKAGE_CONTACT "${contact}" CACHE STRING
    "Maintainer of the packages: whoever builds them for others names an address that is read")
set(CPACK_PACKAGE_CONTACT ${GPULET_PACKAGE_CONTACT})
set(CPACK_PACKAGE_HOMEPAGE_URL "")
set(CPACK_STRIP_FILES ON)
# Configuration is below /etc, outside of the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL frontend backend)
set(CPACK_COMPONENTS_GROUPING IGNORE)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_FRONTEND_PACKAGE_NAME gpulet)
set(CPACK_DEBIAN_FRONTEND_DESCRIPTION
    "The frontend admits requests, batches them, plans which gpulets (shares of a\n\
device) serve which models, and keeps each model within its own latency\n\
objective. With it comes the gpulet command.")
set(CPACK_DEBIAN_FRONTEND_PACKAGE_DEPENDS adduser)
# The authorities that stores of model files have their certificates from.
set(CPACK_DEBIAN_FRONTEND_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_FRONTEND_PACKAGE_SUGGESTS gpulet-backend)

set(CPACK_DEBIAN_BACKEND_PACKAGE_NAME gpulet-backend)
set(CPACK_DEBIAN_BACKEND_DESCRIPTION
    "The backend divides its machine's devices into gpulets as a frontend asks it\n\
to, and runs ONNX and TorchScript models in them, each gpulet in a process of\n\
its own whose compute is bounded from outside. ONNX Runtime comes with it.")
set(CPACK_DEBIAN_BACKEND_PACKAGE_DEPENDS adduser)
# Without OpenBLAS LibTorch takes the reference BLAS and is seven times slower.
set(CPACK_DEBIAN_BACKEND_PACKAGE_RECOMMENDS libopenblas0-pthread)

foreach(pair IN ITEMS "FRONTEND gpulet" "BACKEND gpulet-backend")
  separate_arguments(pair)
  list(GET pair 0 component)
  list(GET pair 1 package)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/debian/${package})
  set(CPACK_DEBIAN_${component}_PACKAGE_CONTROL_EXTRA ${folder}/conffiles ${folder}/postinst ${folder}/prerm
                                                      ${folder}/postrm)
endforeach()
include(CPack)
