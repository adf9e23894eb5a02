from tests.coverage.run import main

main()
