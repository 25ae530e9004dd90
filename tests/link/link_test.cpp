// One binary with LibTorch, yaml-cpp, HDF5, fmt and spdlog: each passes std::string or symbols that a differing ABI, or a second
// copy of a library inside LibTorch, would break.
#include "core/hash.h"
#include "core/version.h"
#include "ops/tensor.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <hdf5_hl.h>
#include <yaml-cpp/yaml.h>

#include "catch.h"

TEST_CASE("LibTorch, yaml-cpp and HDF5 work in one program") {
    // A number goes YAML -> tensor -> HDF5 (in memory) -> back.
    const YAML::Node node = YAML::Load("{values: [1.5, 2.5, 3.5], name: überschrieben}");
    CHECK(node["name"].as<std::string>() == "überschrieben");
    const auto values = node["values"].as<std::vector<double>>();
    const at::Tensor doubled = at::from_blob(const_cast<double*>(values.data()), {3}, at::kDouble) * 2;

    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(access, 1 << 16, 0);
    const hid_t file = H5Fcreate("link_test.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    REQUIRE(file >= 0);
    const hsize_t size = 3;
    REQUIRE(H5LTmake_dataset_double(file, "/doubled", 1, &size, doubled.const_data_ptr<double>()) >= 0);
    std::vector<double> back(3);
    REQUIRE(H5LTread_dataset_double(file, "/doubled", back.data()) >= 0);
    H5Fclose(file);
    H5Pclose(access);
    CHECK(back == std::vector<double>{3, 5, 7});
}

TEST_CASE("exceptions of each library are caught as what they are") {
    CHECK_THROWS_AS(YAML::Load("{a: [1, 2"), YAML::ParserException);
    const at::Tensor a = at::ones({2, 3}), b = at::ones({2, 3});
    CHECK_THROWS_AS(at::matmul(a, b), c10::Error);
    CHECK_THROWS_AS(fmt::format(fmt::runtime("{"), 1), fmt::format_error);
}

TEST_CASE("fmt is the system's, not the copy that LibTorch carries") {
    // LibTorch 2.11 ships fmt 11 headers; ours must come first on the include path and agree with the library that is linked.
    CHECK(palimpsest::build_info().fmt == fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
    CHECK(fmt::format("{:>8.3f}|{:08b}|{}", 3.14159, 37, std::string("x")) == "   3.142|00100101|x");
}
