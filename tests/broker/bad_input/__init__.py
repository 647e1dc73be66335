"""One permanent test for each class of bad input that has a CVE or an issue, here or in another broker.

docs/evidence/bad_input.md maps every row of that list to its tests, or says why it does not apply yet;
`test_table.py` checks the map in both directions. What must hold in each of them: the broker answers or
closes that one connection, the next connection works, and nothing unexpected is in the log (`conftest.py`).
"""
