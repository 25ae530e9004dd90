// The vocabulary options that most tasks share. A task's options derive from VocabularyOptions, and add_vocabulary adds the options
// to the task's schema. Host only.
#pragma once

#include "config/schema.h"
#include "task/events.h"

#include <cstdint>
#include <string_view>

namespace palimpsest {

struct VocabularyOptions {
    std::int64_t vocabulary = 256;
    std::int64_t keys = 0, values = 0;  // 0: an even split
    std::int64_t key_tokens = 1, value_tokens = 1;
};

template <class Options>
Schema<Options> add_vocabulary(Schema<Options> schema) {
    const auto add = [&schema](const char* name, std::int64_t VocabularyOptions::*member, double low, double high,
                               const char* meaning) {
        schema.field(name, static_cast<std::int64_t Options::*>(member), between(low, high), meaning);
    };
    add("vocabulary", &VocabularyOptions::vocabulary, 4, 1 << 30, "number of token ids: filler 0, then keys, then values");
    add("keys", &VocabularyOptions::keys, 0, 1 << 30, "key tokens; 0: half of the vocabulary, less the filler");
    add("values", &VocabularyOptions::values, 0, 1 << 30, "value tokens; 0: all ids that the keys leave");
    add("key_tokens", &VocabularyOptions::key_tokens, 1, 31, "tokens of a key");
    add("value_tokens", &VocabularyOptions::value_tokens, 1, 31, "tokens of a value; all must be right for the answer to count");
    return schema;
}

// Returns the vocabulary of the options. Throws Error(usage) where the numbers do not fit together.
Vocabulary make_vocabulary(const VocabularyOptions& options);

// Throw Error(usage) where the vocabulary has fewer than `needed`; `what` names what needs them ("4 pairs").
void need_keys(const Vocabulary& vocabulary, std::int64_t needed, std::string_view what);
void need_values(const Vocabulary& vocabulary, std::int64_t needed, std::string_view what);

}  // namespace palimpsest
