import os
import subprocess
import sys

import pytest

from funcattn import processor
from funcattn.processor import described, has_undescribed_tiles

_ONE = """processor\t: {number}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 207
model name\t: A Processor
cpuid level\t: {level}
flags\t\t: fpu {flags}
power management:

"""


def said(level: int, flags: str = "avx512f amx_bf16 amx_tile") -> str:
    return "".join(_ONE.format(number=i, level=level, flags=flags) for i in range(2))


def test_the_first_processor_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_said", lambda: said(31))
    assert described()["processor"] == "0"
    assert processor.name() == "A Processor, family 6, model 207"
    assert processor.is_intel()


def test_a_system_that_says_nothing_has_a_name_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processor, "_said", lambda: "")
    assert processor.name()
    assert not processor.is_intel()
    assert not has_undescribed_tiles(described())


@pytest.mark.parametrize(
    ("level", "flags", "undescribed"),
    [
        (28, "amx_tile", True),
        (29, "amx_tile", False),
        (31, "amx_bf16 amx_tile", False),
        (28, "avx512f", False),
        (28, "amx_tiles", False),
    ],
)
def test_tiles_that_are_announced_have_to_be_described(
    level: int, flags: str, undescribed: bool
) -> None:
    assert has_undescribed_tiles(described(said(level, flags))) is undescribed


@pytest.mark.parametrize("own", [None, "AVX2"])
def test_pytorch_is_kept_from_them_but_not_against_the_users_word(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_said", lambda: said(28))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if own:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", own)
    processor.avoid_undescribed_tiles()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == (own or "AVX512_CORE_FP16")


@pytest.mark.parametrize("first", ["funcattn, torch", "torch, funcattn"])
def test_products_in_bfloat16_end_no_process_on_this_machine(first: str) -> None:
    code = f"import {first}; x = torch.ones(64, 64).bfloat16(); assert (x @ x)[0, 0] == 64"
    unset = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run([sys.executable, "-c", code], check=False, env=unset)
    assert done.returncode == 0
