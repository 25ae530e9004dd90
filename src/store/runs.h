// Many runs together: what each has under a key, in which keys they differ, which of them are asked for, and which are one run
// twice.
#pragma once

#include "store/collect.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace palimpsest {

// What a run has under a config key, else under a name of its summary (state_bytes). A section with a name goes by it, and `sweep`
// is where the run was found.
std::optional<Attribute> value_under(const CollectedRun& run, const std::string& key);
// Whose options the valid questions have, by the value of task.valid: "the test segments", "the training segments", "segments of
// their own".
std::string valid_source(const std::string& task_valid);
std::string value_of(const CollectedRun& run, const std::string& key);  // in words; "" where it has none

// Every config key that some run has, sorted; and every name of their summaries.
std::vector<std::string> config_keys(const std::vector<CollectedRun>& runs);
std::vector<std::string> summary_names(const std::vector<CollectedRun>& runs);
// Error(usage) with what there is, where a name is none of `names`; `what` says what it should be.
void check_known(const std::string& what, const std::vector<std::string>& wanted, const std::vector<std::string>& names);

// Names of the shallow policies that were scored for some run.
std::vector<std::string> policy_names(const std::vector<CollectedRun>& runs);

// A number that stands alone in the text.
std::optional<double> number_of(const std::string& text);

// Whether two runs that differ in this key alone are two runs. Device, threads and cadences make no other run, nor does a name.
bool makes_another_run(const std::string& key);

// Whether the values of `from` determine that of `key`. Of a run whose config could not be read nothing but its swept keys counts.
bool follows(const std::vector<CollectedRun>& runs, const std::string& key, const std::vector<std::string>& from);

// Every config key with several values, in order of appearance, then every one that some runs lack.
struct VaryingKey {
    std::string key;
    bool several = false;
};
std::vector<VaryingKey> varying_keys(const std::vector<CollectedRun>& runs);

// The keys in which runs differ: of `swept` those with several values, then any others with several values that do not follow from
// the swept ones, then those that some runs lack, unless they follow too (as the options of a mixer follow from the mixer). Without
// the seed and without what makes no other run.
std::vector<std::string> differing_keys(const std::vector<CollectedRun>& runs, const std::vector<std::string>& swept);

// What a table with these rows averages over, other than seeds: the task first, then keys of `swept`, then others that do not
// follow from the rows and what was named before.
std::vector<std::string> averaged_keys(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by,
                                       const std::vector<std::string>& swept);

// Keeps the runs of "key=value" or "key=value,value". Numbers are compared as numbers. Error(usage) for a key that no run has, or
// values that leave none.
std::vector<CollectedRun> filter(const std::vector<CollectedRun>& runs, const std::string& where);

// The test segments that a run's config plans, in words: the options in which they differ ("length=64"). Empty where nothing is
// known.
std::vector<std::string> test_segments(const CollectedRun& run);
// Everything that decides which questions the valid split asks, by key; accuracies on other questions do not compare. Empty where
// the config is not known.
std::map<std::string, std::string> valid_questions(const CollectedRun& run);

// Runs of one id in several folders.
struct Copies {
    std::size_t runs = 0;       // ids that are there more than once
    std::size_t different = 0;  // of them, how many have other results in another folder
    std::string id;             // an example, with two of its folders
    std::string folder, other;
};
Copies find_copies(const std::vector<CollectedRun>& runs);
// Each run once, of its copies one that has a result where there is one, else the first. Its `sweep` then names all that it is in
// ("a+b"). With `by_sweep` once for each sweep.
std::vector<CollectedRun> each_once(std::vector<CollectedRun> runs, bool by_sweep);

}  // namespace palimpsest
