"""Who may ask, how much, and for how long."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.asgi import Client, client_of, run
from tests.serve.test_plain import GOOD

import posteriori as po
from posteriori.serve import Limits, app
from posteriori.serve.guard import Access, Room
from posteriori.serve.served_model import ServedModel

TOKEN = "0123456789abcdef"


class TestWho:
    """Hosts, origins and tokens."""

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("localhost", 200),
            ("localhost:8000", 200),
            ("LOCALHOST:1", 200),
            ("127.0.0.1:8000", 200),
            ("[::1]:8000", 200),
            ("evil.example", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example:8000", 421),
            ("", 421),
        ],
    )
    def test_the_name_of_the_host(self, client: Client, host: str, status: int) -> None:
        assert client.post("/predict", json=[GOOD], headers={"host": host}).status_code == status
        assert (
            client.get("/v2/health/live" if status != 200 else "/models", headers={"host": host}).status_code == status
        )

    def test_further_names_of_the_host(self, model: Any) -> None:
        named = client_of(app(model, hosts=["Models.Example"]), base_url="http://models.example")
        assert named.get("/models").status_code == 200
        assert client_of(app(model, hosts=None), base_url="http://any.example").get("/models").status_code == 200

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({}, 200),
            ({"origin": "http://localhost"}, 200),
            ({"origin": "https://evil.example"}, 403),
            ({"origin": "http://localhost:81"}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "http://[bad"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
            ({"sec-fetch-site": "same-site"}, 403),
            ({"sec-fetch-site": "same-origin"}, 200),
            ({"sec-fetch-site": "none"}, 200),
        ],
    )
    def test_pages_of_other_sites(self, client: Client, headers: dict[str, str], status: int) -> None:
        reply = client.post("/predict", json=[GOOD], headers=headers)
        assert reply.status_code == status
        assert "access-control-allow-origin" not in reply.headers

    def test_pages_of_sites_that_are_allowed(self, model: Any) -> None:
        ask = client_of(app(model, origins=["https://a.example"]))
        reply = ask.post("/predict", json=[GOOD], headers={"origin": "https://a.example"})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "https://a.example")
        assert ask.post("/predict", json=[GOOD], headers={"origin": "https://b.example"}).status_code == 403
        asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
        before = ask.request("OPTIONS", "/predict", headers=asked)
        assert before.status_code == 204
        assert "POST" in before.headers["access-control-allow-methods"]

    @pytest.mark.parametrize(
        ("given", "status"),
        [
            (None, 401),
            (f"Bearer {TOKEN}", 200),
            (f"bearer {TOKEN}", 200),
            (f"Bearer {TOKEN}0", 401),
            ("Bearer ", 401),
            (f"Basic {TOKEN}", 401),
            (TOKEN, 401),
            (b"Bearer \xff\xfe", 401),
        ],
    )
    def test_the_token(self, model: Any, given: Any, status: int) -> None:
        ask = client_of(app(model, token=TOKEN))
        headers = {} if given is None else {"authorization": given}
        for method, path in (("POST", "/predict"), ("GET", "/models"), ("GET", "/metrics"), ("GET", "/nothing")):
            reply = ask.request(method, path, headers=headers, **({"json": [GOOD]} if method == "POST" else {}))
            assert reply.status_code == (404 if path == "/nothing" and status == 200 else status)
            assert status == 200 or reply.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in reply.text

    def test_no_token_is_compared_in_a_time_that_tells_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import hmac

        compared: list[tuple[bytes, bytes]] = []
        monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or False)
        with pytest.raises(Exception, match="A token is needed"):
            Access(token=TOKEN).require_token({b"authorization": b"Bearer guess"})
        assert compared == [(b"guess", TOKEN.encode())]

    def test_a_header_that_decides_is_there_once(self, client: Client) -> None:
        for name, value in (("host", "localhost"), ("origin", "http://localhost"), ("authorization", "Bearer x")):
            twice = [("host", "localhost")] * (name != "host") + [(name, value)] * 2
            reply = client.post("/predict", json=[GOOD], headers=twice)
            assert (reply.status_code, name in reply.json()["error"].lower()) == (400, True)

    def test_answers_are_not_kept_by_caches(self, client: Client) -> None:
        for reply in (client.post("/predict", json=[GOOD]), client.get("/models"), client.get("/nothing")):
            assert reply.headers["cache-control"] == "no-store"
        assert client.get("/").headers["cache-control"] == "no-cache"  # the page has a tag, and holds nothing

    def test_another_protocol_is_refused_in_words(self, client: Client) -> None:
        headers = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c"}  # Java's client, unless it is told
        reply = client.post("/predict", json=[GOOD], headers=headers)
        assert (reply.status_code, reply.headers["connection"]) == (400, "close")
        assert "'h2c'" in reply.json()["error"]

    def test_a_refusal_is_short(self, client: Client) -> None:
        reply = client.post("/predict", json=[{"k" * 100_000: 1}])
        assert reply.status_code == 400
        assert reply.json()["column"].startswith("kkk")
        assert len(reply.content) < 4_000

    def test_every_answer_is_safe_to_show(self, client: Client) -> None:
        for reply in (client.get("/models"), client.get("/nothing"), client.post("/predict", content=b"{")):
            policy = reply.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["referrer-policy"] == "no-referrer"

    def test_a_method_that_is_not_possible(self, client: Client) -> None:
        reply = client.get("/predict")
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
        assert reply.json() == {"error": "GET is not possible here."}


class TestHowMuch:
    """Sizes and times."""

    def test_a_large_body_is_refused_before_it_is_read(self, model: Any) -> None:
        ask = client_of(app(model, limits=Limits(body_bytes=1000)))
        reply = ask.post("/predict", content=b" " * 1001)
        assert (reply.status_code, reply.headers["connection"]) == (413, "close")

        read = 0

        async def pieces() -> Any:
            nonlocal read
            for _ in range(100):
                read += 100
                yield b" " * 100

        assert ask.post("/predict", content=pieces()).status_code == 413
        assert read <= 1200

    def test_a_slow_body_is_cut_off(self, model: Any) -> None:
        async def slow() -> Any:
            yield b"["
            await asyncio.sleep(5)
            yield b"]"

        start = time.perf_counter()
        reply = client_of(app(model, limits=Limits(body_seconds=0.2))).post("/predict", content=slow())
        assert reply.status_code == 408
        assert time.perf_counter() - start < 3

    def test_an_answer_that_takes_too_long(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        application = app(model, limits=Limits(seconds=0.2))
        monkeypatch.setattr(ServedModel, "answer", lambda *_: time.sleep(1))
        body = b"island,sex\n" * 2
        reply = client_of(application).post("/predict", content=body, headers={"content-type": "text/csv"})
        assert reply.status_code in (400, 504)
        slow = client_of(application).post("/predict", json=[GOOD] * 300)
        assert slow.status_code == 504
        assert "No answer was found in 0.2 seconds" in slow.json()["error"]

    def test_large_bodies_that_do_not_come_leave_room_for_small_ones(self, model: Any) -> None:
        application = app(model, limits=Limits(body_seconds=3.0))

        async def idle() -> Any:
            yield b" "
            await asyncio.sleep(2)

        def ask(content: Any) -> float:
            start = time.perf_counter()
            client_of(application).post("/predict", content=content)
            return time.perf_counter() - start

        with ThreadPoolExecutor(6) as threads:
            slow = [threads.submit(ask, idle()) for _ in range(5)]
            time.sleep(0.5)
            assert ask(b"{}") < 1.0
            assert all(one.result() >= 2.0 for one in slow)
        assert application.guard.room.free == Limits().waiting_bytes

    def test_bodies_wait_for_room(self) -> None:
        async def main() -> list[str]:
            room, told = Room(100), []

            async def one(name: str, n_bytes: int, seconds: float) -> None:
                await room.take(n_bytes, 1.0)
                told.append(f"{name} in")
                await asyncio.sleep(seconds)
                told.append(f"{name} out")
                await room.give(n_bytes)

            await asyncio.gather(one("a", 60, 0.05), one("b", 60, 0.0), one("c", 40, 0.0))
            assert room.free == 100
            with pytest.raises(Exception, match="Too many large requests"):
                await room.take(101, 0.01)
            return told

        told = run(main())
        assert told[0] == "a in"
        assert told.index("b in") > told.index("a out")

    def test_our_own_faults_say_nothing_of_the_inside(
        self, model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        application = app(model)

        def fails(*_: Any) -> Any:
            raise RuntimeError("secret value 12345")

        monkeypatch.setattr(ServedModel, "answer", fails)
        with caplog.at_level(logging.INFO, "posteriori.serve"):
            reply = client_of(application).post("/predict", json=[GOOD])
        assert reply.status_code == 500
        assert reply.json() == {"error": "The server failed to answer: this is its own fault."}
        assert "12345" not in caplog.text
        failed = next(record for record in caplog.records if record.getMessage() == "failed")
        assert failed.reason == "RuntimeError"  # type: ignore[attr-defined]
        assert any("test_guard.py" in frame for frame in failed.frames)  # type: ignore[attr-defined]


class TestNotes:
    """What is counted and written down."""

    def test_metrics_of_several_processes_are_added_up(self, model: Any, tmp_path: Path) -> None:
        """Each leaves its sums in the folder that all share."""
        one, other = (client_of(app({"penguins": model}, folder=tmp_path)) for _ in range(2))
        asked = {"rows": [GOOD] * 3, "answers": ["class", "epistemic"]}
        for ask in (one, other):
            assert ask.post("/predict", json=asked).status_code == 200
        (tmp_path / f"metrics-{os.getpid()}.json").rename(tmp_path / "metrics-1.json")  # as if of another process
        text = one.get("/metrics").text
        assert 'posteriori_rows_total{model="penguins"} 6' in text
        assert 'posteriori_epistemic_nats_count{model="penguins"} 6' in text

    def test_metrics_count_what_was_asked(self, client: Client, penguins: Any) -> None:
        client.post("/predict", json={"rows": [GOOD] * 3, "answers": ["class", "epistemic"]})
        client.post("/predict", json={"rows": [GOOD | {"sex": "blue"}]})
        text = client.get("/metrics").text
        assert 'posteriori_requests_total{route="/predict",status="200"} 1' in text
        assert 'posteriori_requests_total{route="/predict",status="400"} 1' in text
        assert 'posteriori_rows_total{model="penguins"} 3' in text
        assert 'posteriori_predicted_total{model="penguins",class="' in text
        assert 'posteriori_request_seconds_bucket{route="/predict",le="+Inf"} 2' in text
        assert 'posteriori_request_seconds_count{route="/predict"} 2' in text
        epistemic = client.post("/predict", json={"rows": [GOOD], "answers": ["epistemic"]}).json()["rows"][0][
            "epistemic"
        ]
        mean = next(line for line in text.splitlines() if line.startswith("posteriori_epistemic_nats_mean{"))
        assert float(mean.split()[-1]) == pytest.approx(epistemic, rel=1e-9)

    def test_the_uncertainty_is_counted_across_processes_too(self, model: Any, tmp_path: Any) -> None:
        """Sums in files are JSON: the mean has to be a number that JSON has."""
        ask = client_of(app({"penguins": model}, folder=tmp_path))
        said = ask.post("/predict", json={"rows": [GOOD], "answers": ["epistemic"]})
        text = ask.get("/metrics")
        assert (said.status_code, text.status_code) == (200, 200)
        mean = next(line for line in text.text.splitlines() if line.startswith("posteriori_epistemic_nats_mean{"))
        assert float(mean.split()[-1]) == pytest.approx(said.json()["rows"][0]["epistemic"], rel=1e-9)

    def test_processes_add_up(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from posteriori.serve.metrics import Metrics

        for pid in (11, 12):
            monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
            one = Metrics(tmp_path)
            one.request("/predict", 200, 0.003)
            one.write()
        text = one.text({})
        assert 'posteriori_requests_total{route="/predict",status="200"} 2' in text
        assert 'posteriori_request_seconds_bucket{route="/predict",le="0.002"} 0' in text
        assert 'posteriori_request_seconds_bucket{route="/predict",le="0.005"} 2' in text

    def test_a_folder_that_is_gone_disturbs_nobody(self, model: Any, tmp_path: Path) -> None:
        folder = tmp_path / "private"
        folder.mkdir()
        ask = client_of(app({"birds": model}, folder=folder))
        assert ask.post("/predict", json=[GOOD]).status_code == 200
        shutil.rmtree(folder)  # as those do that clean up /tmp
        time.sleep(1.1)
        assert ask.post("/predict", json=[GOOD]).status_code == 200
        assert 'posteriori_rows_total{model="birds"} 2' in ask.get("/metrics").text

    def test_names_of_classes_are_escaped(self) -> None:
        from posteriori.serve.metrics import Metrics

        one = Metrics()
        one.sums["posteriori_rows_total", (("model", 'a"b\\c\nd'),)] = 1.0
        assert r'{model="a\"b\\c\nd"} 1' in one.text({})

    def test_logs_hold_nothing_of_rows(self, client: Client, caplog: pytest.LogCaptureFixture) -> None:
        from posteriori.serve.logs import Lines

        with caplog.at_level(logging.INFO, "posteriori.serve"):
            client.post("/predict?level=0.77", json=[GOOD | {"sex": "blue"}])
            client.post("/predict", json=[GOOD])
        lines = [Lines().format(record) for record in caplog.records]
        assert len(lines) == 2
        entry = httpx.Response(200, content=lines[1]).json()
        assert {name: entry[name] for name in ("event", "method", "route", "status", "model", "rows")} == {
            "event": "request", "method": "POST", "route": "/predict", "status": 200, "model": "penguins", "rows": 1,
        }  # fmt: skip
        assert not any(word in line for line in lines for word in ("blue", "Dream", "0.77", "sex"))


def test_mounted_in_another_application(model: Any) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    ask = client_of(Starlette(routes=[Mount("/birds", app(model, token=TOKEN))]))
    assert ask.get("/birds/models").status_code == 401
    reply = ask.post("/birds/predict", json=[GOOD], headers={"authorization": f"Bearer {TOKEN}"})
    assert reply.status_code == 200
    assert ask.get("/birds/v2/health/live").status_code in (200, 404)


@pytest.mark.slow
def test_a_mounted_application_watches_its_files_in_the_lifespan_of_the_outer_one(
    model: Any, numbers_model: Any, tmp_path: Any
) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    po.save(model, tmp_path / "birds.model")
    models = app(tmp_path / "birds.model")
    outer = Starlette(routes=[Mount("/birds", models)], lifespan=models.lifespan)

    async def swapped() -> bool:
        async with outer.router.lifespan_context(outer):
            before = models.desk.shelf.get()
            po.save(numbers_model, tmp_path / "birds.model")
            for _ in range(100):
                await asyncio.sleep(0.1)
                if models.desk.shelf.get() is not before:
                    return models.desk.shelf.get().classes == [0, 1, 2]
        return False

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(asyncio.run, swapped()).result()
