"""A test that has nothing to do with images."""


def test_sum():
    assert 1 + 1 == 2
