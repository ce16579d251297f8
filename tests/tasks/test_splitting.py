import pytest

from funcattn.tasks.splitting import PARTS, split_cases

NAMES = [f"case_{i:03d}" for i in range(100)]


def test_every_case_is_in_one_part_of_the_size_asked_for() -> None:
    parts = split_cases(NAMES, validation=0.2, test=7)
    assert sorted(place for places in parts.values() for place in places) == list(range(100))
    assert {part: len(parts[part]) for part in PARTS} == {"train": 73, "validation": 20, "test": 7}


def test_it_depends_on_names_and_seed_and_not_on_the_order() -> None:
    parts = split_cases(NAMES)
    backwards = split_cases(NAMES[::-1])
    for part in PARTS:
        assert {NAMES[i] for i in parts[part]} == {NAMES[::-1][i] for i in backwards[part]}
    assert split_cases(NAMES, seed=1) != parts


def test_a_case_more_leaves_nearly_all_where_they_were() -> None:
    before, after = split_cases(NAMES), split_cases([*NAMES, "another"])
    moved = sum(len(set(before[part]) - set(after[part])) for part in PARTS)
    assert moved <= 2


def test_groups_stay_together() -> None:
    groups = [i // 7 for i in range(100)]
    parts = split_cases(NAMES, groups=groups)
    seen = {part: {groups[i] for i in parts[part]} for part in PARTS}
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["validation"]
    assert not seen["validation"] & seen["test"]
    assert all(seen.values())


def test_the_parts_can_be_given() -> None:
    told = ["train", "test", "train", "validation"]
    assert split_cases(NAMES[:4], parts=told) == {"train": [0, 2], "validation": [3], "test": [1]}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"test": 0}, "test: expected a fraction .* above 0, got 0"),
        ({"validation": 60, "test": 60}, "expected cases left for training .* none of 100 cases"),
        ({"groups": [0] * 50 + [1] * 50}, "none of 100 cases in 2 groups"),
        ({"groups": [0]}, "one key for each of 100 cases, got 1"),
        ({"parts": ["train"] * 99 + ["exam"]}, "case case_099: expected .*, got 'exam'"),
        ({"parts": ["train"] * 99 + ["test"]}, "got none in validation"),
        ({"parts": ["train"]}, "one for each of 100 cases, got 1"),
    ],
)
def test_what_cannot_be_split_is_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_cases(NAMES, **asked)  # type: ignore[arg-type]


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="expected each case once, got a again"):
        split_cases(["a", "b", "a", "c"])
