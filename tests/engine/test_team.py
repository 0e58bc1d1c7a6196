"""How many threads there are: what the system allows, and what a container's quota leaves."""

import math

import pytest

from lib.engine import team


def groups(tmp_path, lines, files):
    """Write control groups as Linux shows them, and return where they and one's own are."""
    mine = tmp_path / "cgroup"
    mine.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "fs", mine


V1 = ["7:memory:/docker/x", "4:cpu,cpuacct:/docker/x"]
QUOTAS = {
    "none": ([], {}, math.inf),
    "version 2": (["0::/a/b"], {"a/b/cpu.max": "150000 100000\n"}, 1.5),
    "version 2, no limit": (["0::/a"], {"a/cpu.max": "max 100000\n"}, math.inf),
    "of a group above": (["0::/a/b"], {"a/b/cpu.max": "max 1", "a/cpu.max": "200 100"}, 2.0),
    "in a container": (["0::/"], {"cpu.max": "50000 100000"}, 0.5),
    "hidden above": (["0::/../../x"], {"cpu.max": "100 100"}, 1.0),
    "version 1": (V1, {"cpu,cpuacct/docker/x/cpu.cfs_quota_us": "300",
                       "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100"}, 3.0),
    "version 1 in a container": (V1, {"cpu/cpu.cfs_quota_us": "100",
                                      "cpu/cpu.cfs_period_us": "100"}, 1.0),
    "version 1, no limit": (V1, {"cpu/cpu.cfs_quota_us": "-1",
                                 "cpu/cpu.cfs_period_us": "100"}, math.inf),
    "damaged": (["0::/"], {"cpu.max": "lots"}, math.inf),
}  # fmt: skip


@pytest.mark.parametrize("kind", QUOTAS)
def test_the_quota_of_control_groups(tmp_path, kind):
    lines, files, quota = QUOTAS[kind]
    assert team._quota(*groups(tmp_path, lines, files)) == quota


def test_a_system_without_control_groups_has_no_quota(tmp_path):
    assert team._quota(tmp_path, tmp_path / "missing") == math.inf


@pytest.mark.parametrize(("quota", "threads"), [(math.inf, 6), (2.5, 3), (0.1, 1), (64.0, 6)])
def test_threads_are_no_more_than_the_quota(monkeypatch, quota, threads):
    monkeypatch.setattr(team, "_quota", lambda: quota)
    monkeypatch.setattr(team.os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert team.usable_processors() == threads
    assert team.Team().threads == threads
