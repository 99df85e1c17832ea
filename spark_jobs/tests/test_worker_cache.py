"""What a worker keeps on its node between batches."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.stage_task import _Worker


def test_a_worker_deletes_what_older_claims_have_left_on_its_node(
    tmp_path: Path,
) -> None:
    """Executors outlive drivers, and nobody else cleans their hosts."""
    left = tmp_path / "1-older" / "shard-00000"
    left.mkdir(parents=True)
    worker = _Worker()

    cache = worker.cache(tmp_path, "2-newer")

    assert not left.parent.exists()
    (tmp_path / "2-newer").mkdir()
    assert worker.cache(tmp_path, "2-newer") is cache
    assert (tmp_path / "2-newer").exists()
