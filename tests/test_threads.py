"""Threads: BLAS limits come back, the number of threads is what was asked for, every task is done exactly once."""

import multiprocessing
import os
import threading
import time
import weakref
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from posteriori import threads
from posteriori.threads import one_blas_thread, run_tasks, usable_threads

WAIT = 20.0


def blas_limits():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_limits() != {2}:
            pytest.skip("this BLAS has no limit to set")
        yield


# BLAS


@pytest.mark.usefixtures("two_blas_threads")
class TestOneBlasThread:
    def test_restores_the_limits(self):
        with one_blas_thread():
            assert blas_limits() == {1}
        assert blas_limits() == {2}

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_restores_the_limits_after_an_exception(self, error):
        @one_blas_thread()
        def fail():
            raise error(str(blas_limits()))

        with pytest.raises(error, match=r"\{1\}"):
            fail()
        assert blas_limits() == {2}

    def test_nested_restores_the_limits_at_the_end(self):
        with one_blas_thread():
            with one_blas_thread():
                assert blas_limits() == {1}
            assert blas_limits() == {1}
        assert blas_limits() == {2}

    @pytest.mark.parametrize("first", ["main", "other"])
    @pytest.mark.parametrize("last", ["main", "other"])
    def test_the_last_thread_to_leave_restores_the_limits(self, first, last):
        enter, entered, leave, left = (threading.Event() for _ in range(4))

        def other():
            enter.wait(WAIT)
            with one_blas_thread():
                entered.set()
                leave.wait(WAIT)
            left.set()

        thread = threading.Thread(target=other)
        thread.start()
        if first == "other":
            enter.set()
            assert entered.wait(WAIT)
        with one_blas_thread():
            enter.set()
            assert entered.wait(WAIT)
            inside = blas_limits()
            if last == "main":
                leave.set()
                assert left.wait(WAIT)
            one_left = blas_limits()
        if last == "other":
            one_left = blas_limits()
            leave.set()
        thread.join(WAIT)
        assert (inside, one_left, blas_limits()) == ({1}, {1}, {2})

    def test_limits_set_between_two_uses_are_kept(self):
        with one_blas_thread():
            pass
        with threadpool_limits(3, user_api="blas"):
            with one_blas_thread():
                assert blas_limits() == {1}
            assert blas_limits() == {3}


# The number of threads


@pytest.mark.parametrize(
    ("n_jobs", "omp", "expected"),
    [
        (None, None, 8),
        (None, "3", 3),
        (None, "3,2", 3),
        (None, "100", 8),
        (None, "0", 8),
        (None, "", 8),
        (None, "many", 8),
        (1, "3", 1),
        (5, "3", 5),
        (20, None, 20),
        (-1, "3", 8),
        (-2, None, 7),
        (-8, None, 1),
        (-100, None, 1),
    ],
)
def test_usable_threads(monkeypatch, n_jobs, omp, expected):
    monkeypatch.setattr(threads, "_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if omp is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", omp)
    assert usable_threads(n_jobs) == expected


def test_no_threads_are_refused():
    with pytest.raises(ValueError, match=r"n_jobs is 0.*-1 for all cores"):
        usable_threads(0)


# Tasks


@given(st.integers(0, 60), st.integers(1, 8))
@settings(deadline=None)
def test_every_task_is_done_once_and_results_are_in_order(n_tasks, n_threads):
    done = []

    def task(i):
        done.append(i)
        return i * i

    assert run_tasks(task, n_tasks, n_threads) == [i * i for i in range(n_tasks)]
    assert Counter(done) == Counter(range(n_tasks))


def test_two_threads_work_at_the_same_time():
    meeting = threading.Barrier(2, timeout=WAIT)  # each task waits for the other
    names = run_tasks(lambda i: (meeting.wait(), threading.current_thread().name)[1], 2, 2)
    assert len(set(names)) == 2


def test_one_thread_is_the_caller():
    assert run_tasks(lambda i: threading.current_thread(), 3, 1) == [threading.current_thread()] * 3


@pytest.mark.parametrize("where", ["caller", "helper"])
@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt])
def test_an_exception_reaches_the_caller_and_leaves_no_running_helper(where, error):
    caller, meeting = threading.current_thread(), threading.Barrier(2, timeout=WAIT)
    started, finished = [], []

    def task(i):
        if i < 2:
            meeting.wait()  # both threads are at work
            if (threading.current_thread() is caller) == (where == "caller"):
                raise error(f"task of the {where}")
        started.append(i)
        time.sleep(0.01)
        finished.append(i)

    with pytest.raises(error, match=f"task of the {where}"):
        run_tasks(task, 50, 2)
    so_far = sorted(finished)
    assert sorted(started) == so_far  # whatever was begun has ended
    time.sleep(0.05)
    assert sorted(started) == so_far  # and nothing was begun afterwards
    if where == "caller":
        assert len(so_far) < 50
    assert run_tasks(str, 3, 2) == ["0", "1", "2"]  # the pool is still in order


def test_tasks_may_run_tasks():
    assert run_tasks(lambda i: sum(run_tasks(lambda j: i * j, 5, 4)), 6, 4) == [10 * i for i in range(6)]


def test_several_callers_share_the_pool():
    results = {}

    def caller(name):
        results[name] = run_tasks(lambda i: (time.sleep(0.001), name * i)[1], 20, 4)

    callers = [threading.Thread(target=caller, args=(name,)) for name in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(WAIT)
    assert results == {name: [name * i for i in range(20)] for name in range(4)}


def _in_child():
    os._exit(0 if run_tasks(abs, 4, 2) == [0, 1, 2, 3] else 1)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_its_own_pool():
    run_tasks(abs, 4, 2)
    child = multiprocessing.get_context("fork").Process(target=_in_child)
    child.start()
    child.join(WAIT)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0


def test_helpers_that_never_start_keep_nothing_in_memory():
    """Work within work: its helpers wait for a thread that is busy, and must not hold the rows until it is free."""

    class Rows:
        pass

    n_helpers = max(1, threads._cores() - 1)
    started, done, freed = threading.Semaphore(0), threading.Event(), []

    def task(_):
        if threading.current_thread() is not threading.main_thread():
            started.release()
            done.wait(30)
            return
        for _ in range(n_helpers):
            assert started.acquire(timeout=30)
        rows = Rows()
        seen = weakref.ref(rows)
        threads.run_tasks(lambda _, rows=rows: None, 2, 2)
        del rows
        freed.append(seen() is None)
        done.set()

    threads.run_tasks(task, n_helpers + 1, n_helpers + 1)
    assert freed == [True]
