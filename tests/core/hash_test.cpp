#include "core/hash.h"

#include "core/error.h"
#include "temporary_folder.h"

#include <fstream>

#include "catch.h"

using namespace palimpsest;

TEST_CASE("SHA-256 gives the values of FIPS 180-4 and NIST's vectors") {
    CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(sha256_hex(
              "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu") ==
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    CHECK(sha256_hex(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    CHECK(sha256_hex(std::string(1, '\xbd')) == "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
}

TEST_CASE("SHA-256 does not depend on how the bytes come in, at every length around a block") {
    for (std::size_t length = 0; length <= 130; ++length) {
        std::string text(length, '\0');
        for (std::size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 7);
        Sha256 piecewise;
        for (const char c : text) piecewise.update(&c, 1);
        REQUIRE(piecewise.hex() == sha256_hex(text));
    }
    Sha256 hash;
    hash.update("ab");
    CHECK(hash.hex() == sha256_hex("ab"));  // looking does not end it
    CHECK(hash.update("c").hex() == sha256_hex("abc"));
}

TEST_CASE("SHA-256 of a file is streamed") {
    const TemporaryFolder folder;
    const std::string path = folder / "data";
    const std::string content(200001, 'x');  // several buffers and a part of one
    std::ofstream(path, std::ios::binary) << content;
    CHECK(sha256_file(path) == sha256_hex(content));
    CHECK_THROWS_WITH(sha256_file(folder / "absent"), "cannot read '" + (folder / "absent") + "': No such file or directory");
    CHECK_THROWS_WITH(sha256_file(folder.path), "cannot read '" + folder.path + "': Is a directory");
}

TEST_CASE("FNV-1a gives the published values and chains") {
    CHECK(fnv1a("") == 0xcbf29ce484222325ull);
    CHECK(fnv1a("a") == 0xaf63dc4c8601ec8cull);
    CHECK(fnv1a("foobar") == 0x85944171f73967e8ull);
    CHECK(fnv1a("bar", fnv1a("foo")) == fnv1a("foobar"));
}
