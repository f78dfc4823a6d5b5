from .fuzz import fuzz


def test_bad_requests_are_refused_with_a_sentence_and_change_nothing(client):
    counts, grown = fuzz(client, 600)
    assert sum(counts.values()) == 600
    assert counts[400] > 200
    assert grown < 50e6
